-- take: claims pending jobs for one owner, each under its own lease.
-- include  queue checks ids now_ms rows finish
-- defines  take

-- The fields that a claim hands out beside the payload, where they differ from their default.
local HANDED = {
  [UNCOUNTED] = 'uncounted=', [FAILURES] = 'failures=', [STALLED] = 'stalled=', [MAX_ATTEMPTS] = 'max_attempts=',
  [PRIORITY] = 'priority=', [BACKOFF] = 'backoff=', [TIMEOUT] = 'timeout=',
}

-- Claims up to `limit` jobs with up to `most_bytes` of payload, but always one job; a job that has stalled before
-- travels alone. Appends ticket, fields (`name=value` with commas) and payload of each to `answer`; answers how many
-- it took.
local function take(answer, limit, owner, lease_ms, most_bytes)
  local ids = redis.call('ZRANGE', q.pending, 0, limit - 1)
  local rows, broken, strays, ghosts, seen, bytes = {}, {}, 0, 0, 0, 0
  for _, id in ipairs(ids) do
    local row = read_to_claim(id)
    if not row then
      ghosts = ghosts + 1
    elseif not is_job_id(id) then
      broken[#broken + 1] = {row, NO_ID}
    elseif not row.plain and is_elsewhere(row, 'pending') then
      strays = strays + 1
    else
      local fault = not row.plain and (fault_of(row) or (not row[PAYLOAD] and 'the row has no payload'))
      if fault then
        broken[#broken + 1] = {read_row(id), fault}
      else
        local stalled = row[STALLED] and row[STALLED] ~= '0'
        bytes = bytes + #row[PAYLOAD]
        if #rows > 0 and (stalled or bytes > most_bytes) then
          break
        end
        rows[#rows + 1] = row
        if stalled then
          seen = seen + 1
          break
        end
      end
    end
    seen = seen + 1
  end
  if seen == 0 then
    return 0
  end
  if #broken > 0 then
    touch_sets()
  end

  redis.call('ZREMRANGEBYRANK', q.pending, 0, seen - 1)
  local members, n = {}, #answer
  local deadline = digits(now_ms + lease_ms)
  for i, row in ipairs(rows) do
    local token = NEXT[row[ATTEMPTS]] or digits(tonumber(row[ATTEMPTS]) + 1)
    redis.call('HSET', row_key(row.id), 'state', 'active', 'attempts', token, 'owner', owner, 'started_at', now_text)
    members[2 * i - 1], members[2 * i] = deadline, row.id
    local fields = ''
    if not row.plain then
      for field = UNCOUNTED, TIMEOUT do
        if row[field] then
          fields = fields .. (fields == '' and '' or ',') .. HANDED[field] .. row[field]
        end
      end
    end
    answer[n + 1], answer[n + 2], answer[n + 3] = row.id .. ':' .. token, fields, row[PAYLOAD]
    n = n + 3
  end
  if #rows > 0 then
    redis.call('ZADD', q.active, unpack(members))
  end
  for _, pair in ipairs(broken) do
    bury_broken(pair[1], pair[2])
  end
  if ghosts + strays > 0 then
    count('ghosts', ghosts + strays)
  end
  return #rows
end
