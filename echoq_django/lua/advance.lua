-- advance: set when a registration is due next (EchoMQ's verb, with its wire line).
-- moves    none
-- KEYS     repeat
-- ARGV     name next_at
-- answers  1 | 0 for a name that is not registered, which leaves the set
-- include  queue checks registration

-- EchoMQ's second key, `repeat:<name>`, is derived from the name.
q['repeat'] = KEYS[1]
local name, next_at = ARGV[1], whole(ARGV[2], 0)

local wrong = check_name(name)
if wrong then
  return wrong
end
if not next_at then
  return refuse('next_at', 'must be a whole number of milliseconds, 0 or more')
end
redis.call('ZCARD', q['repeat'])
if redis.call('EXISTS', q['repeat:' .. name]) == 0 then
  redis.call('ZREM', q['repeat'], name)
  return 0
end

redis.call('ZADD', q['repeat'], digits(next_at), name)
return 1
