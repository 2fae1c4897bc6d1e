-- counts: how many jobs are in each state, and what has been counted since the queue began.
-- moves    none
-- KEYS     pending schedule active completed dead cancelled meta metrics:totals
-- ARGV     none
-- answers  {pending, scheduled, active, completed, dead, cancelled, "1" when paused else "0", now_ms, total, number,
--          ...}
-- include  queue checks now_ms

q['metrics:totals'] = KEYS[8]
local answer = {}
for i = 1, 6 do
  answer[i] = digits(redis.call('ZCARD', KEYS[i]))
end
answer[7] = redis.call('HGET', KEYS[7], 'paused') and '1' or '0'
answer[8] = now_text
local totals = redis.call('HGETALL', q['metrics:totals'])
for i = 1, #totals do
  answer[8 + i] = totals[i]
end
return answer
