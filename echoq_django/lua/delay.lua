-- delay: send a job in hand back to the schedule, nothing counted (EchoMQ's verb and wire line; `retention` is ours).
-- moves    active -> scheduled, active -> cancelled, scheduled -> pending
-- KEYS     job active schedule
-- ARGV     id token mode value retention
-- answers  1
-- include  queue checks ids now_ms rows bell place admit totals finish trim settle settle_one

q.active, q.schedule = KEYS[2], KEYS[3]
local id, token, mode, value = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

if mode ~= 'in' and mode ~= 'at' then
  return refuse('mode', 'must be in or at')
end
local wrong = check_new(id, mode, value, '0', 0)
if wrong then
  return wrong
end
if not whole(token, 0) then
  return refuse('token', 'must be the whole number that the claim returned')
end
wrong = read_retention(ARGV[5])
if wrong then
  return wrong
end
listen()
touch_sets()
local score = price(mode, tonumber(value))
local row, refusal = judge('delay', id, token, redis.call('ZSCORE', q.active, id))
if refusal == 'broken' then
  bury_broken(row, fault_of(row))
  count_up()
  return redis.error_reply('EMQSTATE broken row, buried')
end
if refusal == 'stale' then
  return redis.error_reply('EMQSTALE delay token mismatch')
end
if refusal == 'not_active' then
  return redis.error_reply('EMQSTATE delay not active')
end
if refusal then
  return redis.error_reply(NOT_HELD[refusal])
end

redis.call('ZREM', q.active, id)
apply('delay', row, digits(score - from_ms), '')
trim_ended()
count_up()
return 1
