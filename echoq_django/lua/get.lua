-- get: read one job as it is now.
-- moves    none
-- KEYS     job schedule active completed dead cancelled
-- ARGV     id
-- answers  {"job", score in the set of its state or "", field, value, ...} | {"missing"}
-- include  queue

q.schedule, q.active, q.completed, q.dead, q.cancelled = KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local row = redis.call('HGETALL', KEYS[1])
if #row == 0 then
  return {'missing'}
end
local answer = {'job', ''}
for i = 1, #row, 2 do
  answer[i + 2], answer[i + 3] = row[i], row[i + 1]
  if row[i] == 'state' then
    local set = row[i + 1] == 'scheduled' and 'schedule' or row[i + 1]
    local scored = {schedule = 1, active = 1, completed = 1, dead = 1, cancelled = 1}
    if scored[set] then
      answer[2] = redis.call('ZSCORE', q[set], ARGV[1]) or ''
    end
  end
end
return answer
