-- beat: reap, promote, free what is parked behind nobody, and ring for work that waits unheard; costs little if idle.
-- moves    active -> pending, active -> dead, active -> cancelled, scheduled -> pending, scheduled -> cancelled
-- KEYS     active pending schedule completed dead cancelled expiry wake meta
-- ARGV     limit max_stalled lease_ms outage_ms retention
-- answers  {"beat", reaped, promoted, us to the next score or -1}
-- include  queue checks ids now_ms rows bell place totals unique finish trim settle sort_out reap_due promote_due

q.active, q.pending, q.schedule, q.completed, q.dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
q.cancelled, q.expiry, q.wake, q.meta = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local limit = whole(ARGV[1], 1, 1000)
if not limit then
  return refuse('limit', 'must be a whole number from 1 to 1000')
end
local wrong = check_reaping(ARGV[2], ARGV[3], ARGV[4]) or read_retention(ARGV[5])
if wrong then
  return wrong
end
local waiting = redis.call('ZCARD', q.pending)
local lease = redis.call('ZRANGE', q.active, 0, 0, 'WITHSCORES')
local has_lapsed = lease[2] and tonumber(lease[2]) <= now_ms
local next_in = next_in_us()
local parked = redis.call('ZRANGE', q.parked, 0, 99)
if waiting == 0 and not has_lapsed and next_in ~= '0' and #parked == 0 then
  if lease[1] then -- Without a lease there is nothing that an outage could cut short.
    even_when_full()
    redis.call('HSET', q.meta, 'reaped_at', now_text)
  end
  return {'beat', '0', '0', next_in}
end
touch_sets()
listen()

local reaped = 0
if may_reap(tonumber(ARGV[3]), tonumber(ARGV[4])) then
  reaped = reap_due(limit, tonumber(ARGV[2]))
end
local promoted = promote_due(limit)
for _, id in ipairs(parked) do
  local row = read_row(id)
  local owner = row and row[AFTER] and read_row(row[AFTER])
  if not row or not row[AFTER] then
    redis.call('ZREM', q.parked, id)
  elseif not owner or fault_of(owner) or POSITION[owner[STATE]] then
    unpark(row)
  else -- The next beat looks at others first.
    redis.call('ZADD', q.parked, now_text, id)
  end
end
trim_ended()
if waiting > 0 then
  ring()
end
count_up()
return {'beat', digits(reaped), digits(promoted), next_in_us()}
