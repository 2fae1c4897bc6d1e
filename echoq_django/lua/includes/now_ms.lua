-- now_ms: the server's clock, the only one that decides about a job.
-- defines  now_ms from_ms now_us now_text

local clock = redis.call('TIME')
-- As digits, which costs less than to format the number.
local now_text = clock[1] .. string.sub('00000' .. clock[2], -6, -4)
local now_ms = tonumber(now_text)
local now_us = clock[1] * 1000000 + clock[2]
-- A length of time is counted from the next whole millisecond, so that nothing is ever due early.
local from_ms = now_us % 1000 == 0 and now_ms or now_ms + 1
