-- join: let one incarnation of a worker's child claim, with its number of executors.
-- moves    none
-- KEYS     workers meta
-- ARGV     child executors
-- answers  {"joined"}
-- include  queue checks roster

q.workers, q.meta = KEYS[1], KEYS[2]
local child, executors = ARGV[1], whole(ARGV[2], 1, 10000)
if not child or not string.find(child, '^[^:]+:[^:]+:[^:]+$') then
  return refuse('child', 'must be worker:child:incarnation')
end
if not executors then
  return refuse('executors', 'must be a whole number from 1 to 10000')
end
redis.call('HLEN', q.meta)

even_when_full()
redis.call('HSET', q.workers, child, digits(executors))
count_executors()
return {'joined'}
