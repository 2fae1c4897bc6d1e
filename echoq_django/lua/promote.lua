-- promote: move scheduled jobs that are due to pending (EchoMQ's verb, with its wire line).
-- moves    scheduled -> pending, scheduled -> cancelled
-- KEYS     schedule pending
-- ARGV     base batch
-- answers  the number of scores that were due, at most batch
-- include  queue checks ids now_ms rows bell place totals finish sort_out promote_due

q.schedule, q.pending = KEYS[1], KEYS[2]
local sent_base, batch = ARGV[1], whole(ARGV[2], 1)

if sent_base ~= base then
  return refuse('base', 'must be the queue that the keys belong to, ' .. base)
end
if not batch then
  return refuse('batch', 'must be a positive whole number')
end
read_retention()
touch_sets()
listen()

local n = promote_due(math.min(batch, 1000))
count_up()
return n
