-- claim: hand up to `limit` pending jobs to one registered executor, each under its own lease.
-- moves    pending -> active, pending -> cancelled, scheduled -> pending
-- KEYS     pending active workers meta wake
-- ARGV     child thread lease_ms limit most_bytes retention
-- answers  {"claimed", ticket, fields, payload, ...} | {"paused"} | {"unregistered"}
-- include  queue checks now_ms bell totals take
-- seldom   finish

q.pending, q.active, q.workers, q.meta, q.wake = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local child, thread = ARGV[1], ARGV[2]
local lease_ms, limit, most_bytes = whole(ARGV[3], 1), whole(ARGV[4], 1, 1000), whole(ARGV[5], 1)

if not lease_ms then
  return refuse('lease_ms', 'must be a whole number of 1 or more')
end
if not limit then
  return refuse('limit', 'must be a whole number from 1 to 1000')
end
if not most_bytes then
  return refuse('most_bytes', 'must be a whole number of 1 or more')
end
local wrong = seldom().read_retention(ARGV[6])
if wrong then
  return wrong
end
if redis.call('HEXISTS', q.workers, child) == 0 then
  return {'unregistered'}
end
if redis.call('HGET', q.meta, 'paused') then
  return {'paused'}
end
seldom().touch_sets()
listen()

local answer = {'claimed'}
take(answer, limit, child .. ':' .. thread, lease_ms, most_bytes, ARGV[6])
if redis.call('ZCARD', q.pending) > 0 then
  ring()
end
count_up()
return answer
