-- leave: stop a worker, or one incarnation of its child, from claiming.
-- moves    none
-- KEYS     workers meta
-- ARGV     who
-- answers  {"left", entries}
-- include  queue checks roster

q.workers, q.meta = KEYS[1], KEYS[2]
local who = ARGV[1]
if not who or who == '' then
  return refuse('who', 'must be a worker or worker:child:incarnation')
end
redis.call('HLEN', q.meta)
return {'left', digits(strike(who))}
