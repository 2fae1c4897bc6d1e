-- tidy: trim jobs that ended long ago or are too many; forget workers silent for three leases and children without one.
-- moves    completed -> (gone), dead -> (gone), cancelled -> (gone), scheduled -> pending
-- KEYS     completed dead cancelled expiry meta workers
-- ARGV     limit retention
-- answers  {"tidied", rows trimmed}
-- include  queue checks now_ms rows bell finish trim roster

q.completed, q.dead, q.cancelled, q.expiry = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
q.meta, q.workers = KEYS[5], KEYS[6]
local limit = whole(ARGV[1], 1, 200)
if not limit then
  return refuse('limit', 'must be a whole number from 1 to 200')
end
local wrong = read_retention(ARGV[2])
if wrong then
  return wrong
end
touch_sets()
listen()
local listed = redis.call('HGETALL', q.workers)

local trimmed = trim_expired(limit)
for state in pairs(POSITION) do
  if trimmed < limit then
    trimmed = trimmed + trim(state, limit - trimmed)
  end
end
local is_alive = {}
for i = 1, #listed, 2 do
  local seen, lease = string.match(listed[i + 1], '^(%d+) (%d+) ')
  is_alive[listed[i]] = seen and tonumber(seen) + 3 * tonumber(lease) >= now_ms
end
for i = 1, #listed, 2 do
  local worker = string.match(listed[i], '^[^:]+')
  if worker and not is_alive[worker] then
    strike(worker)
    is_alive[worker] = true
  end
end
return {'tidied', digits(trimmed)}
