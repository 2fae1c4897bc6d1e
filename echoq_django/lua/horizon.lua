-- horizon: move on until when the schedules of an epoch may fire; an earlier instant changes nothing.
-- moves    none
-- KEYS     meta
-- ARGV     epoch until
-- answers  {"held", until, now} | {"lost", epoch that is there or "", its until or "0", now}
-- include  queue checks now_ms

q.meta = KEYS[1]
local epoch, wanted = ARGV[1], whole(ARGV[2], 0)
if not epoch or epoch == '' then
  return refuse('epoch', 'must not be empty')
end
if not wanted then
  return refuse('until', 'must be a whole number of milliseconds, 0 or more')
end
local there = redis.call('HMGET', q.meta, 'epoch', 'horizon')
local reached = whole(there[2], 0) or 0
if there[1] ~= epoch then
  return {'lost', there[1] or '', digits(reached), now_text}
end

if wanted > reached then
  redis.call('HSET', q.meta, 'horizon', digits(wanted))
end
return {'held', digits(math.max(wanted, reached)), now_text}
