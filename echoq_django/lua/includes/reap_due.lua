-- reap_due: takes back active jobs whose lease ran out.
-- include  queue checks now_ms rows bell place finish settle
-- defines  reap_due

-- Takes back up to `limit` jobs, each stalled once more; answers how many leases had run out.
local function reap_due(limit, max_stalled)
  local ids = redis.call('ZRANGE', q.active, '-inf', now_text, 'BYSCORE', 'LIMIT', 0, limit)
  if #ids == 0 then
    return 0
  end
  local rows, broken, strays = {}, {}, 0
  for _, id in ipairs(ids) do
    local row = read_row(id)
    if not row or is_elsewhere(row, 'active') then
      strays = strays + 1
    else
      local fault = fault_of(row)
      if fault then
        broken[#broken + 1] = {row, fault}
      else
        rows[#rows + 1] = row
      end
    end
  end
  if #broken > 0 then
    touch_sets()
  end

  redis.call('ZREM', q.active, unpack(ids))
  for _, row in ipairs(rows) do
    apply('stall', row, max_stalled, '')
  end
  for _, pair in ipairs(broken) do
    bury_broken(pair[1], pair[2])
  end
  if strays > 0 then
    count('ghosts', strays)
  end
  return #ids
end
