-- enqueue_many: add jobs in order, all or none; ids that have a row are left as they are.
-- moves    (new) -> pending, (new) -> scheduled
-- KEYS     pending schedule wake meta
-- ARGV     count job...
-- answers  {("enqueued", score or "") or ("duplicate", state), ...}, two for each job
-- include  queue checks ids now_ms bell place admit

-- A job is: id payload mode value priority, how many fields follow, and these.
q.pending, q.schedule, q.wake, q.meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local n = whole(ARGV[1], 1, 1000)
if not n then
  return refuse('count', 'must be a whole number from 1 to 1000')
end

local jobs, at = {}, 2
for i = 1, n do
  local where = 'items[' .. (i - 1) .. '].'
  local fields = whole(ARGV[at + 5], 0, 200)
  if not fields then
    return refuse(where .. 'fields', 'must be counted by a whole number from 0 to 200')
  end
  local wrong = check_new(where, ARGV[at], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], fields)
  if wrong then
    return wrong
  end
  if ARGV[at + 1] == '' then
    return refuse(where .. 'payload', 'must not be empty')
  end
  jobs[i] = {at = at, last = at + 5 + fields}
  at = at + 6 + fields
end
if at ~= #ARGV + 1 then
  return refuse('job', 'does not end where the counts say')
end
local admitted = {}
for _, job in ipairs(jobs) do
  local id = ARGV[job.at]
  job.key = row_key(id)
  if admitted[id] then
    job.found = ARGV[admitted[id] + 2] == 'now' and 'pending' or 'scheduled'
  else
    job.found = state_there(job.key)
    admitted[id] = not job.found and job.at or nil
  end
end
redis.call('ZCARD', q.pending)
redis.call('ZCARD', q.schedule)
listen()

local answer = {}
for i, job in ipairs(jobs) do
  local a = job.at
  if job.found then
    answer[2 * i - 1], answer[2 * i] = 'duplicate', job.found
  else
    local mode, value, priority = ARGV[a + 2], tonumber(ARGV[a + 3]), tonumber(ARGV[a + 4])
    answer[2 * i - 1] = 'enqueued'
    answer[2 * i] = admit(job.key, ARGV[a], ARGV[a + 1], mode, value, priority, a + 6, job.last)
  end
end
return answer
