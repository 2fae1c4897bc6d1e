-- now_ms: the server's clock, the only one that decides about a job.
-- defines  now_ms from_ms now_us now_text

local clock = redis.call('TIME')
local seconds, microseconds = tonumber(clock[1]), tonumber(clock[2])
local now_ms = seconds * 1000 + math.floor(microseconds / 1000)
-- A length of time is counted from the next whole millisecond, so that nothing is ever due early.
local from_ms = seconds * 1000 + math.ceil(microseconds / 1000)
local now_us = seconds * 1000000 + microseconds
local now_text = string.format('%.0f', now_ms)
