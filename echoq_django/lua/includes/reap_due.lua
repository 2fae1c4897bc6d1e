-- reap_due: takes back active jobs whose lease ran out.
-- include  queue checks ids now_ms rows bell place finish settle sort_out
-- defines  check_reaping may_reap reap_due

-- Why the numbers of a reap are refused, as an error; nil when they are sound.
local function check_reaping(max_stalled, lease_ms, outage_ms)
  if not whole(max_stalled, 0) then
    return refuse('max_stalled', 'must be a whole number, 0 or more')
  end
  if not whole(lease_ms, 1, LARGEST - now_ms) then
    return refuse('lease_ms', 'must be a whole number of 1 or more')
  end
  if not whole(outage_ms, 1) then
    return refuse('outage_ms', 'must be a whole number of 1 or more')
  end
  return nil
end

-- Whether leases may be taken back. When nobody has looked for longer than `outage_ms`, or the clock went back, Redis
-- or the workers were away: everybody first gets half a lease, so that live supervisors extend in time.
local function may_reap(lease_ms, outage_ms)
  even_when_full()
  local facts = redis.call('HMGET', q.meta, 'reaped_at', 'grace_until')
  local last, grace_until = whole(facts[1], 0), whole(facts[2], 0)
  if last and (now_ms - last > outage_ms or now_ms < last) then
    grace_until = now_ms + math.floor(lease_ms / 2)
    redis.call('HSET', q.meta, 'reaped_at', now_text, 'grace_until', digits(grace_until))
    return false
  end
  redis.call('HSET', q.meta, 'reaped_at', now_text)
  return not grace_until or now_ms >= grace_until or grace_until > now_ms + lease_ms
end

-- Takes back up to `limit` jobs, each stalled once more; answers how many leases had run out.
local function reap_due(limit, max_stalled)
  local ids = redis.call('ZRANGE', q.active, '-inf', now_text, 'BYSCORE', 'LIMIT', 0, limit)
  if #ids == 0 then
    return 0
  end
  local rows, broken, strays = sort_out(ids, 'active')

  redis.call('ZREM', q.active, unpack(ids))
  for _, row in ipairs(rows) do
    apply('stall', row, max_stalled, '')
  end
  bury_rest(broken, strays)
  return #ids
end
