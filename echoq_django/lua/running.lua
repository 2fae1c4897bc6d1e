-- running: what is in hand: who has each job, since when, and how its payload begins.
-- moves    none
-- KEYS     active
-- ARGV     limit bytes
-- answers  {total, now_ms, id, owner, started_at, attempts, cancel, first bytes of the payload, id, ...}; what a row
--          does not have is empty
-- include  queue checks now_ms

q.active = KEYS[1]
local limit, bytes = whole(ARGV[1], 1, 1000), whole(ARGV[2], 0, 10000)
if not limit then
  return refuse('limit', 'must be a whole number from 1 to 1000')
end
if not bytes then
  return refuse('bytes', 'must be a whole number from 0 to 10000')
end
local answer, n = {digits(redis.call('ZCARD', q.active)), now_text}, 2
for _, id in ipairs(redis.call('ZRANGE', q.active, 0, limit - 1)) do
  local row = redis.pcall('HMGET', row_key(id), 'owner', 'started_at', 'attempts', 'cancel', 'payload')
  if row.err then
    row = {}
  end
  answer[n + 1] = id
  for i = 1, 4 do
    answer[n + 1 + i] = row[i] or ''
  end
  answer[n + 6] = string.sub(row[5] or '', 1, bytes)
  n = n + 6
end
return answer
