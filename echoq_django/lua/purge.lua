-- purge: delete up to `limit` jobs of one state, oldest or next first; call until it answers 0.
-- moves    pending -> (gone), scheduled -> (gone), completed -> (gone), dead -> (gone), cancelled -> (gone),
-- moves    scheduled -> pending
-- KEYS     pending schedule completed dead cancelled expiry
-- ARGV     state limit
-- answers  {"purged", n}
-- include  queue checks now_ms rows bell finish trim

q.pending, q.schedule, q.completed = KEYS[1], KEYS[2], KEYS[3]
q.dead, q.cancelled, q.expiry = KEYS[4], KEYS[5], KEYS[6]
local sets = {
  pending = q.pending, scheduled = q.schedule, completed = q.completed, dead = q.dead, cancelled = q.cancelled,
}
local set, limit = sets[ARGV[1] or ''], whole(ARGV[2], 1, 1000)
if not set then
  return refuse('state', 'must be pending, scheduled, completed, dead or cancelled; active jobs are cancelled first')
end
if not limit then
  return refuse('limit', 'must be a whole number from 1 to 1000')
end
touch_sets()
listen()
local ids = redis.call('ZRANGE', set, 0, limit - 1)
local parked = {}
if ARGV[1] == 'scheduled' and #ids < limit then
  parked = redis.call('ZRANGE', q.parked, 0, limit - #ids - 1)
end

drop(q.parked, parked, 'scheduled')
drop(set, ids, ARGV[1])
return {'purged', digits(#ids + #parked)}
