-- sort_out: what the members of a set that are due turn out to be.
-- include  queue checks ids now_ms rows totals finish
-- defines  sort_out bury_rest

-- A row that was read; one that differs from no default is known by its three fields, which spares asking for more.
local function read_due(id)
  if redis.pcall('HLEN', row_key(id)) == 3 then
    local row = redis.call('HMGET', row_key(id), 'state', 'attempts')
    if row[STATE] and row[ATTEMPTS] then
      row.id = id
      return row
    end
  end
  return read_row(id)
end

-- Splits members of the set of `state` into sound rows and broken ones with their fault; answers both, and how many
-- have no row or are elsewhere. Reads only.
local function sort_out(ids, state)
  local rows, broken, strays = {}, {}, 0
  for _, id in ipairs(ids) do
    local row = read_due(id)
    if not row or is_elsewhere(row, state) then
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
  return rows, broken, strays
end

-- Buries the broken ones and counts the strays, which have left the set with the others.
local function bury_rest(broken, strays)
  for _, pair in ipairs(broken) do
    bury_broken(pair[1], pair[2])
  end
  if strays > 0 then
    count('ghosts', strays)
  end
end
