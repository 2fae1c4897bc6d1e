-- reap: take back active jobs whose lease ran out, each stalled once more; after an outage with a grace (EchoMQ: reap).
-- moves    active -> pending, active -> dead, active -> cancelled, scheduled -> pending
-- KEYS     active pending dead wake meta
-- ARGV     limit max_stalled lease_ms outage_ms retention
-- answers  {"reaped", n}
-- include  queue checks ids now_ms rows bell place totals finish trim settle sort_out reap_due

q.active, q.pending, q.dead, q.wake, q.meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local limit = whole(ARGV[1], 1)
if not limit then
  return refuse('limit', 'must be a whole number of 1 or more')
end
local wrong = check_reaping(ARGV[2], ARGV[3], ARGV[4]) or read_retention(ARGV[5])
if wrong then
  return wrong
end
touch_sets()
listen()

local n = 0
if may_reap(tonumber(ARGV[3]), tonumber(ARGV[4])) then
  n = reap_due(math.min(limit, 1000), tonumber(ARGV[2]))
end
trim_ended()
count_up()
return {'reaped', digits(n)}
