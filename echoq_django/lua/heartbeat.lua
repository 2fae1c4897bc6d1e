-- heartbeat: say that a worker lives, and give all that its children hold a new deadline.
-- moves    none
-- KEYS     workers active meta
-- ARGV     worker lease_ms facts ticket...
-- answers  {"alive" or "new", "lost" or "cancelled", ticket, ...}: new when nobody knew the worker, so that its
--          children have to join again
-- include  queue checks now_ms extend_held

q.workers, q.active, q.meta = KEYS[1], KEYS[2], KEYS[3]
local worker, lease_ms, facts = ARGV[1], whole(ARGV[2], 1), ARGV[3] or ''
if not worker or worker == '' or string.find(worker, ':', 1, true) then
  return refuse('worker', 'must be a name without a colon')
end
if not lease_ms then
  return refuse('lease_ms', 'must be a whole number of 1 or more')
end
local answer = {redis.call('HEXISTS', q.workers, worker) == 1 and 'alive' or 'new'}
extend_held(answer, lease_ms, 4)
redis.call('HSET', q.workers, worker, now_text .. ' ' .. digits(lease_ms) .. ' ' .. facts)
return answer
