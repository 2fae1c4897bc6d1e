-- bury: end a job in hand as dead at once, whatever attempts are left.
-- moves    active -> dead, scheduled -> pending
-- KEYS     active dead
-- ARGV     ticket error retention
-- answers  {"buried"}
-- include  queue checks now_ms rows bell place finish trim settle settle_one

q.active, q.dead = KEYS[1], KEYS[2]
return read_retention(ARGV[3]) or settle_one('bury', ARGV[1], '', ARGV[2] or '') or {'buried'}
