-- pause: let nobody claim from a queue; what is in hand goes on.
-- moves    none
-- KEYS     meta
-- ARGV     none
-- answers  {"paused"}
-- include  queue

q.meta = KEYS[1]
redis.call('HSET', q.meta, 'paused', '1')
return {'paused'}
