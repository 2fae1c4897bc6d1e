-- roster: the queue's live workers, and the children that may claim.
-- include  queue checks
-- defines  strike count_executors

-- `workers` maps a worker to `<last heartbeat ms> <lease ms> <facts>` and a child, `worker:child:incarnation`, to how
-- many executors it has.

-- Writes down how many executors there are, for the share of a claim.
local function count_executors()
  local sum = 0
  local all = redis.call('HGETALL', q.workers)
  for i = 1, #all, 2 do
    if string.find(all[i], ':', 1, true) then
      sum = sum + (whole(all[i + 1], 0) or 0)
    end
  end
  redis.call('HSET', q.meta, 'executors', digits(sum))
end

-- Removes what matches from the roster: a worker with its children, or one child. Answers how many entries went.
local function strike(who)
  local gone = {}
  for _, name in ipairs(redis.call('HKEYS', q.workers)) do
    if name == who or string.sub(name, 1, #who + 1) == who .. ':' then
      gone[#gone + 1] = name
    end
  end
  if #gone > 0 then
    redis.call('HDEL', q.workers, unpack(gone))
    count_executors()
  end
  return #gone
end
