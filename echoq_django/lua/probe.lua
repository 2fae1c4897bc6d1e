-- probe: see whether a worker may claim, by a write that changes nothing and is refused where a claim would be.
-- moves    none
-- KEYS     pending workers meta
-- ARGV     worker
-- answers  {"alive" or "silent" or "unknown", ms since its heartbeat or -1, children that may claim, "1" when paused
--          else "0"}
-- include  queue checks now_ms

q.pending, q.workers, q.meta = KEYS[1], KEYS[2], KEYS[3]
local worker = ARGV[1]
if not worker or worker == '' or string.find(worker, ':', 1, true) then
  return refuse('worker', 'must be a name without a colon')
end
local entry, children = nil, 0
local all = redis.call('HGETALL', q.workers)
for i = 1, #all, 2 do
  if all[i] == worker then
    entry = all[i + 1]
  elseif string.sub(all[i], 1, #worker + 1) == worker .. ':' then
    children = children + 1
  end
end
local paused = redis.call('HGET', q.meta, 'paused') and '1' or '0'

-- A replica, and a server that cannot write to its disk, refuse this as they would a claim.
redis.call('ZREM', q.pending, '')
local seen, lease = string.match(entry or '', '^(%d+) (%d+)')
if not seen then
  return {'unknown', '-1', digits(children), paused}
end
local silent = math.max(0, now_ms - tonumber(seen))
return {silent < tonumber(lease) and 'alive' or 'silent', digits(silent), digits(children), paused}
