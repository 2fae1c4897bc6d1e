-- reap: take back active jobs whose lease ran out, each stalled once more (EchoMQ: reap).
-- moves    active -> pending, active -> dead, active -> cancelled
-- KEYS     active pending dead wake meta
-- ARGV     limit max_stalled retention
-- answers  {"reaped", n}
-- include  queue checks now_ms rows bell place finish trim settle reap_due

q.active, q.pending, q.dead, q.wake, q.meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local limit, max_stalled = whole(ARGV[1], 1), whole(ARGV[2], 0)
if not limit then
  return refuse('limit', 'must be a whole number of 1 or more')
end
if not max_stalled then
  return refuse('max_stalled', 'must be a whole number, 0 or more')
end
local wrong = read_retention(ARGV[3])
if wrong then
  return wrong
end
touch_sets()
listen()

local n = reap_due(math.min(limit, 1000), max_stalled)
trim_ended()
count_up()
return {'reaped', digits(n)}
