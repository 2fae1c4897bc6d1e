-- reprocess: run a job that has ended once more, with its whole budget.
-- moves    dead -> pending, cancelled -> pending, completed -> pending
-- KEYS     job pending completed dead cancelled expiry wake meta
-- ARGV     id
-- answers  {"pending"} | {"missing"}
-- include  queue checks ids now_ms rows bell place unique

q.pending, q.completed, q.dead, q.cancelled = KEYS[2], KEYS[3], KEYS[4], KEYS[5]
q.expiry, q.wake, q.meta = KEYS[6], KEYS[7], KEYS[8]
local id = ARGV[1]
if not is_job_id(id) then
  return redis.error_reply('EMQKIND id must be JOB and 1 to 61 letters, digits or _')
end
local row = read_row(id)
if not row then
  return {'missing'}
end
local fault = fault_of(row) or (redis.call('HEXISTS', KEYS[1], 'payload') == 0 and 'the row has no payload')
if fault then
  return redis.error_reply('EMQSTATE reprocess broken row: ' .. fault)
end
if row[STATE] ~= 'dead' and row[STATE] ~= 'cancelled' and row[STATE] ~= 'completed' then
  return redis.error_reply('EMQSTATE reprocess ' .. row[STATE])
end
redis.call('ZCARD', q.pending)
redis.call('ZCARD', q.expiry)
listen()

redis.call('ZREM', q[row[STATE]], id)
redis.call('ZREM', q.expiry, id)
place(id, number_of(row, PRIORITY))
redis.call('HDEL', KEYS[1], 'failures', 'stalled', 'cancel', 'reason', 'result', 'progress', 'unknown_since',
  'last_error')
redis.call('HSET', KEYS[1], 'state', 'pending', 'uncounted', row[ATTEMPTS])
if row[EXPIRES] then
  redis.call('HSET', KEYS[1], 'expires_at', digits(math.min(now_ms + tonumber(row[EXPIRES]), LARGEST)))
end
local _, _, ttl, key = read_unique(row[UNIQUE])
if key then
  row[UNIQUE_UNTIL] = ttl > 0 and digits(now_ms + ttl)
  if ttl > 0 then
    redis.call('HSET', KEYS[1], 'unique_until', row[UNIQUE_UNTIL])
  end
  take_back(row)
end
ring()
return {'pending'}
