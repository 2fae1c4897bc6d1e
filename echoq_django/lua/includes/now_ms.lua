-- now_ms: the server's clock, the only one that decides about a job.
-- defines  now_ms from_ms now_us now_text

local clock = redis.call('TIME')
local now_ms = clock[1] * 1000 + math.floor(clock[2] / 1000)
-- A length of time is counted from the next whole millisecond, so that nothing is ever due early.
local from_ms = clock[1] * 1000 + math.ceil(clock[2] / 1000)
local now_us = clock[1] * 1000000 + clock[2]
local now_text = string.format('%.0f', now_ms)
