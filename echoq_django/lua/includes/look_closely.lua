-- look_closely: what a pending job is whose row is not as a claim expects it.
-- include  queue checks ids rows
-- defines  look_closely

-- Answers 'sound' with attempts, payload, the fields to hand out and the row, `handed` naming the fields; or 'broken'
-- with the row and its fault; or 'ghost' for an id without a row or one that is elsewhere. Reads only.
local function look_closely(id, handed)
  local row = read_row(id)
  if not row then
    return 'ghost'
  end
  if not is_job_id(id) then
    return 'broken', row, NO_ID
  end
  if is_elsewhere(row, 'pending') then
    return 'ghost'
  end
  local fault = fault_of(row)
  if fault then
    return 'broken', row, fault
  end
  local payload = redis.call('HGET', row_key(id), 'payload')
  if not payload then
    return 'broken', row, 'the row has no payload'
  end
  local fields = ''
  for i = 1, #handed do
    local value = row[UNCOUNTED + i - 1]
    if value then
      fields = fields .. (fields == '' and '' or ',') .. handed[i] .. value
    end
  end
  return 'sound', row[ATTEMPTS], payload, fields, row
end
