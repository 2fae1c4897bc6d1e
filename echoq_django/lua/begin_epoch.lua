-- begin_epoch: let schedules fire in a new epoch, after their registrations were made anew.
-- moves    none
-- KEYS     meta
-- ARGV     epoch until expected
-- answers  {"begun", until, now} | {"lost", epoch that is there or "", its until or "0", now}
-- include  queue checks now_ms

-- `expected` is the epoch that was there when the registrations were looked at, or "".
q.meta = KEYS[1]
local epoch, wanted, expected = ARGV[1], whole(ARGV[2], 0), ARGV[3]
if not epoch or epoch == '' then
  return refuse('epoch', 'must not be empty')
end
if not wanted then
  return refuse('until', 'must be a whole number of milliseconds, 0 or more')
end
local there = redis.call('HMGET', q.meta, 'epoch', 'horizon')
local current, reached = there[1] or '', whole(there[2], 0) or 0
if current ~= expected and current ~= epoch then
  return {'lost', current, digits(reached), now_text}
end
if current == epoch then
  wanted = math.max(wanted, reached)
end

redis.call('HSET', q.meta, 'epoch', epoch, 'horizon', digits(wanted))
return {'begun', digits(wanted), now_text}
