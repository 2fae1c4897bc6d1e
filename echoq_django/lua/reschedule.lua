-- reschedule: give a scheduled job another run-at (EchoMQ's verb, with its wire line).
-- moves    scheduled -> scheduled
-- KEYS     job schedule
-- ARGV     id mode value
-- answers  1 | -1 for an id without a row
-- include  queue checks ids now_ms bell place admit

q.schedule = KEYS[2]
local job = KEYS[1]
local id, mode, value = ARGV[1], ARGV[2], ARGV[3]

if mode ~= 'in' and mode ~= 'at' then
  return refuse('mode', 'must be in or at')
end
local wrong = check_new(id, mode, value, '0', 0)
if wrong then
  return wrong
end
local state = redis.call('HGET', job, 'state')
if not state and redis.call('EXISTS', job) == 0 then
  return -1
end
local owner = redis.call('HGET', job, 'after')
if owner and state == 'scheduled' then
  return redis.error_reply('EMQSTATE reschedule parked until ' .. owner .. ' has ended')
end
if state ~= 'scheduled' or not redis.call('ZSCORE', q.schedule, id) then
  return redis.error_reply('EMQSTATE reschedule not scheduled')
end
listen()
local score = price(mode, tonumber(value))
local earlier = rings_earlier(score)

redis.call('ZADD', q.schedule, 'XX', digits(score), id)
local expires = whole(redis.call('HGET', job, 'expires'), 1)
if expires then
  redis.call('HSET', job, 'expires_at', digits(math.min(score + expires, LARGEST)))
end
if earlier then
  ring()
end
return 1
