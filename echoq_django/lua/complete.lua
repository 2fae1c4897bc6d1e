-- complete: end a job in hand as done; accepted late when the job had stalled and nobody has claimed it since.
-- moves    active -> completed, pending -> completed, scheduled -> completed, dead -> completed, scheduled -> pending
-- KEYS     active completed
-- ARGV     ticket result retention
-- answers  {"completed"}, also when it was completed before with the same token
-- include  queue checks now_ms rows bell place finish trim settle settle_one

q.active, q.completed = KEYS[1], KEYS[2]
return read_retention(ARGV[3]) or settle_one('complete', ARGV[1], '', ARGV[2] or '') or {'completed'}
