-- beat: reap, promote, trim and ring for work that waits unheard; forgets workers that fell silent.
-- moves    active -> pending, active -> dead, active -> cancelled, scheduled -> pending, completed -> (gone), dead -> (gone), cancelled -> (gone)
-- KEYS     active pending schedule completed dead cancelled expiry wake meta workers
-- ARGV     limit max_stalled retention
-- answers  {"beat", reaped, promoted, trimmed, us to the next score or -1}
-- include  queue checks now_ms rows bell admit finish trim settle reap_due promote_due roster

q.active, q.pending, q.schedule, q.completed, q.dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
q.cancelled, q.expiry, q.wake, q.meta, q.workers = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local limit, max_stalled = whole(ARGV[1], 1, 1000), whole(ARGV[2], 0)
if not limit then
  return refuse('limit', 'must be a whole number from 1 to 1000')
end
if not max_stalled then
  return refuse('max_stalled', 'must be a whole number, 0 or more')
end
local wrong = read_retention(ARGV[3])
if wrong then
  return wrong
end
touch_sets()
local roster = redis.call('HGETALL', q.workers)
local waiting = redis.call('ZCARD', q.pending)
listen()

local reaped = reap_due(limit, max_stalled)
local promoted = promote_due(limit)
local trimmed = trim_expired(200)
for state in pairs(POSITION) do
  if trimmed < 200 then
    trimmed = trimmed + trim(state, 200 - trimmed)
  end
end
for i = 1, #roster, 2 do
  local seen, lease = string.match(roster[i + 1], '^(%d+) (%d+) ')
  if seen and tonumber(seen) + 3 * tonumber(lease) < now_ms then
    strike(roster[i])
  end
end
if waiting > 0 then
  ring()
end
count_up()
return {'beat', digits(reaped), digits(promoted), digits(trimmed), next_in_us()}
