-- unregister: forget a registration; what its schedule goes on from is answered (EchoMQ: cancel).
-- moves    none
-- KEYS     repeat meta
-- ARGV     name
-- answers  {"unregistered", next slot or "", last slot or "", runs, skipped, missed} | {"missing"}
-- include  queue checks registration

q['repeat'], q.meta = KEYS[1], KEYS[2]
local name = ARGV[1]

local wrong = check_name(name)
if wrong then
  return wrong
end
local record = q['repeat:' .. name]
local there = redis.call('HMGET', record, 'last_slot', 'runs', 'skipped', 'missed')
local found = redis.call('EXISTS', record) == 1
local score = redis.call('ZSCORE', q['repeat'], name)
local drawn = redis.call('HGET', q.meta, 'sequence')

redis.call('ZREM', q['repeat'], name)
redis.call('UNLINK', record)
if drawn then -- A definition that was drawn before this is not to bring the registration back.
  even_when_full()
  redis.call('HSET', q.meta, 'unregistered', drawn)
end
if not found then
  return {'missing'}
end
return {'unregistered', slot_of(score), there[1] or '', there[2] or '0', there[3] or '0', there[4] or '0'}
