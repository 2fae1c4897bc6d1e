-- bell: wakes one waiting worker. Rung when work can be claimed and nobody has been woken for it yet.
-- include  queue checks now_ms
-- defines  listen ring rings_earlier next_in_us

local bell_is_silent, paused, first_due

-- Reads what ringing depends on; belongs to the read phase of every script that may ring. Answers whether the queue is
-- paused, and how many executors it has.
local function listen()
  bell_is_silent = redis.call('LLEN', q.wake) == 0
  local facts = redis.call('HMGET', q.meta, 'paused', 'executors')
  paused = facts[1]
  return paused, facts[2]
end

local function ring()
  if bell_is_silent and not paused then
    redis.call('RPUSH', q.wake, '1')
    bell_is_silent = false
  end
end

-- Whether `score` comes before everything scheduled, so that who waits for the next due time must look again.
local function rings_earlier(score)
  if not first_due then
    local first = redis.call('ZRANGE', q.schedule, 0, 0, 'WITHSCORES')
    first_due = first[2] and tonumber(first[2]) or math.huge
  end
  if score < first_due then
    first_due = score
    return true
  end
  return false
end

-- The time until the first score of the schedule, in microseconds, as digits; '-1' when nothing is scheduled.
-- `first` is its first member with the score, where that has been read already.
local function next_in_us(first)
  first = first or redis.call('ZRANGE', q.schedule, 0, 0, 'WITHSCORES')
  return first[2] and digits(math.min(math.max(0, tonumber(first[2]) * 1000 - now_us), LARGEST)) or '-1'
end
