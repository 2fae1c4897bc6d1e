-- resume: let claims go on.
-- moves    none
-- KEYS     meta pending schedule wake
-- ARGV     none
-- answers  {"resumed"}
-- include  queue bell

q.meta, q.pending, q.schedule, q.wake = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local waiting = redis.call('ZCARD', q.pending) + redis.call('ZCARD', q.schedule)
listen()

redis.call('HDEL', q.meta, 'paused')
listen()
if waiting > 0 then
  ring()
end
return {'resumed'}
