-- sequence: draw the number of a definition, before the schedule is read from which it is made.
-- moves    none
-- KEYS     meta
-- ARGV     none
-- answers  the number, greater than all before
-- include  queue checks

q.meta = KEYS[1]
local last = whole(redis.call('HGET', q.meta, 'sequence'), 0, LARGEST - 1) or 0

redis.call('HSET', q.meta, 'sequence', digits(last + 1))
return last + 1
