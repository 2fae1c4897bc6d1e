-- retry: give a job in hand back after an error; dead when its attempts are used up (EchoMQ: retry).
-- moves    active -> scheduled, active -> dead, active -> cancelled, scheduled -> pending
-- KEYS     active schedule dead
-- ARGV     ticket delay_ms error retention
-- answers  {"retried"}
-- include  queue checks now_ms rows bell place finish trim settle settle_one

q.active, q.schedule, q.dead = KEYS[1], KEYS[2], KEYS[3]
return read_retention(ARGV[4]) or settle_one('retry', ARGV[1], ARGV[2], ARGV[3] or '') or {'retried'}
