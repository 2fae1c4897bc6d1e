-- register: add a recurrence that is first due at an instant (EchoMQ's verb, with its wire line).
-- moves    none
-- KEYS     repeat
-- ARGV     name every_ms template first_at
-- answers  1 | 0 for a name that is registered, which stays as it is
-- include  queue checks registration

-- EchoMQ's second key, `repeat:<name>`, is derived from the name.
q['repeat'] = KEYS[1]
local name, every_ms, template, first_at = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local wrong = check_name(name)
if wrong then
  return wrong
end
if not whole(every_ms, 1, 4320000000000000) then
  return refuse('every_ms', 'must be a whole number from 1 to 4320000000000000')
end
if not template then
  return refuse('template', 'is missing')
end
local first = whole(first_at, 0)
if not first then
  return refuse('first_at', 'must be a whole number of milliseconds, 0 or more')
end
local record = q['repeat:' .. name]
if redis.call('EXISTS', record) == 1 then
  return 0
end
redis.call('ZCARD', q['repeat'])

redis.call('HSET', record, 'every_ms', every_ms, 'template', template)
redis.call('ZADD', q['repeat'], digits(first), name)
return 1
