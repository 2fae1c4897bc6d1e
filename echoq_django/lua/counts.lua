-- counts: how many jobs are in each state, and what has been counted since the queue began.
-- moves    none
-- KEYS     pending schedule active completed dead cancelled meta metrics:totals parked
-- ARGV     none
-- answers  {pending, scheduled, active, completed, dead, cancelled, "1" when paused else "0", now_ms, total, number,
--          ...}
-- include  queue now_ms

q['metrics:totals'] = KEYS[8]
local answer = {}
for i = 1, 6 do
  answer[i] = redis.call('ZCARD', KEYS[i])
end
answer[2] = answer[2] + redis.call('ZCARD', KEYS[9]) -- Parked jobs are scheduled, without a time.
answer[7] = redis.call('HGET', KEYS[7], 'paused') and '1' or '0'
answer[8] = now_text
local totals = redis.call('HGETALL', q['metrics:totals'])
for i = 1, #totals do
  answer[8 + i] = totals[i]
end
return answer
