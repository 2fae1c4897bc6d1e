-- pause: let nobody claim from a queue; what is in hand goes on.
-- moves    none
-- KEYS     meta
-- ARGV     none
-- answers  {"paused"}
-- include  queue

redis.call('HSET', KEYS[1], 'paused', '1')
return {'paused'}
