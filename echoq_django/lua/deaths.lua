-- deaths: tell of jobs that died without the word of an executor, each once; from ten minutes before the first call.
-- moves    none
-- KEYS     dead meta
-- ARGV     limit
-- answers  {id, ...}
-- include  queue checks now_ms

-- What the workers of a job say themselves is `failed`.
local UNTOLD = {stalled = 1, stopped = 1, overrun = 1, broken = 1, ['unknown task'] = 1}

local dead, meta = KEYS[1], KEYS[2]
local limit = whole(ARGV[1], 1, 1000)
if not limit then
  return refuse('limit', 'must be a whole number from 1 to 1000')
end
-- The cursor is a score, and how many with that score have been looked at. Jobs that die in this very millisecond are
-- told next time, since more may follow.
local last = digits(now_ms - 1)
local score, looked = string.match(redis.call('HGET', meta, 'deaths') or '', '^(%d+) (%d+)$')
if not score then
  score, looked = digits(math.max(0, now_ms - 600000)), 0
end
looked = tonumber(looked)
local page = redis.call('ZRANGE', dead, score, last, 'BYSCORE', 'LIMIT', looked, limit, 'WITHSCORES')
local told = {}
for i = 1, #page, 2 do
  local reason = redis.pcall('HGET', row_key(page[i]), 'reason')
  if type(reason) == 'string' and UNTOLD[reason] then
    told[#told + 1] = page[i]
  end
  looked = page[i + 1] == score and looked + 1 or 1
  score = page[i + 1]
end
if #page > 0 or redis.call('HEXISTS', meta, 'deaths') == 0 then
  redis.call('HSET', meta, 'deaths', score .. ' ' .. digits(looked))
end
return told
