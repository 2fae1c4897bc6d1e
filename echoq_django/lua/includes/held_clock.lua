-- held_clock: stands in for now_ms where time is to be held still and moved: it reads the queue's key `clock`.
-- include  queue
-- defines  now_ms from_ms now_us now_text

local now_ms = tonumber(redis.call('GET', q.clock) or nil)
if not now_ms then
  return redis.error_reply('ERR the clock is held and its key is missing: set ' .. q.clock .. ' to milliseconds')
end
local from_ms, now_us = now_ms, now_ms * 1000
local now_text = string.format('%.0f', now_ms)
