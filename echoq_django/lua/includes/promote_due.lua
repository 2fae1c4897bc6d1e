-- promote_due: moves scheduled jobs that are due to where claims find them.
-- include  queue checks ids now_ms rows bell place finish
-- defines  promote_due

-- Moves up to `limit` jobs, oldest score first; answers how many were due. An id without a row is dropped and counted,
-- as is one whose row says that it is elsewhere (EchoMQ's native promote).
local function promote_due(limit)
  local ids = redis.call('ZRANGE', q.schedule, '-inf', now_text, 'BYSCORE', 'LIMIT', 0, limit)
  if #ids == 0 then
    return 0
  end
  local rows, broken, strays = {}, {}, 0
  for _, id in ipairs(ids) do
    local row = read_row(id)
    if not row or is_elsewhere(row, 'scheduled') then
      strays = strays + 1
    else
      local fault = not is_job_id(id) and NO_ID or fault_of(row)
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

  redis.call('ZREM', q.schedule, unpack(ids))
  for _, row in ipairs(rows) do
    place(row.id, number_of(row, PRIORITY))
    redis.call('HSET', row_key(row.id), 'state', 'pending')
  end
  for _, pair in ipairs(broken) do
    bury_broken(pair[1], pair[2])
  end
  if strays > 0 then
    count('ghosts', strays)
  end
  if #rows > 0 then
    ring()
  end
  return #ids
end
