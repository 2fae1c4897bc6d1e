-- release: hand back a job that had not begun, nothing counted.
-- moves    active -> pending, active -> cancelled, scheduled -> pending
-- KEYS     active pending
-- ARGV     ticket retention
-- answers  {"released"}
-- include  queue checks now_ms rows bell place finish trim settle settle_one

q.active, q.pending = KEYS[1], KEYS[2]
return read_retention(ARGV[2]) or settle_one('release', ARGV[1], '', '') or {'released'}
