-- enqueue_many: add jobs in order, all or none; ids that have a row are left as they are.
-- moves    (new) -> pending, (new) -> scheduled
-- KEYS     pending schedule wake meta
-- ARGV     group...
-- answers  {score or "" for each group, (number of the job, state) for each duplicate}
-- include  queue checks ids now_ms bell place admit

-- A group is jobs that share what is not their own: mode value priority, how many texts of fields follow, these, how
-- many jobs follow, and of each its id and payload. Jobs are numbered from 0.
q.pending, q.schedule, q.wake, q.meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

-- The refusal of one job's argument, with the job's number.
local function of_item(i, wrong)
  return redis.error_reply((string.gsub(wrong.err, ' ', ' items[' .. digits(i) .. '].', 1)))
end

local groups, ids, keys, payloads, n, at = {}, {}, {}, {}, 0, 1
local seen, has_twins = {}, false
while at <= #ARGV do
  local mode, value, priority = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local fields = whole(ARGV[at + 3], 0, 200)
  if not fields then
    return of_item(n, refuse('fields', 'must be counted by a whole number from 0 to 200'))
  end
  local first = at + 5 + fields
  local jobs = whole(ARGV[first - 1], 1, 1000)
  if not jobs or n + jobs > 1000 or first + 2 * jobs - 1 > #ARGV then
    return refuse('group', 'must count its jobs, at most 1000 in all, and end where it says')
  end
  local wrong = check_new(ARGV[first], mode, value, priority, fields)
  if wrong then
    return of_item(n, wrong)
  end
  groups[#groups + 1] = {mode, tonumber(value), tonumber(priority), at + 4, first - 2, n + 1, n + jobs}
  for i = first, first + 2 * jobs - 1, 2 do
    local id, payload = ARGV[i], ARGV[i + 1]
    if #id > 64 or not string.find(id, '^JOB%w+$') and not is_job_id(id) then
      return of_item(n, check_new(id, mode, value, priority, fields))
    end
    if payload == '' then
      return of_item(n, refuse('payload', 'must not be empty'))
    end
    has_twins = has_twins or seen[id]
    seen[id] = true
    n = n + 1
    ids[n], keys[n], payloads[n] = id, row_prefix .. id, payload
  end
  at = first + 2 * jobs
end
if n == 0 then
  return refuse('group', 'is missing')
end

local duplicates, states = {}, {}
if has_twins or redis.call('EXISTS', unpack(keys)) > 0 then
  local admitted = {}
  for _, group in ipairs(groups) do
    for i = group[6], group[7] do
      local found = admitted[ids[i]] or state_there(keys[i])
      if found then
        duplicates[#duplicates + 1] = digits(i - 1)
        duplicates[#duplicates + 1] = found
        states[i] = found
      else
        admitted[ids[i]] = group[1] == 'now' and 'pending' or 'scheduled'
      end
    end
  end
end
redis.call('ZCARD', q.pending)
redis.call('ZCARD', q.schedule)
listen()

local answer = {}
for g, group in ipairs(groups) do
  local mode, value, priority, first, last = unpack(group, 1, 5)
  local is_now = mode == 'now'
  local set, score, state = q.pending, digits(0 - priority), 'pending'
  local is_earlier = false
  if not is_now then
    local due = price(mode, value)
    set, score, state = q.schedule, digits(due), 'scheduled'
    is_earlier = rings_earlier(due)
  end
  answer[g] = is_now and '' or score
  local members, m = {}, 0
  for i = group[6], group[7] do
    if not states[i] then
      members[m + 1], members[m + 2] = score, ids[i]
      m = m + 2
    end
  end
  for i = 1, m, 1000 do
    redis.call('ZADD', set, unpack(members, i, math.min(i + 999, m)))
  end
  if m > 0 and (is_now or is_earlier) then
    ring()
  end
  for i = group[6], group[7] do
    if not states[i] and priority == 0 and first > last then
      redis.call('HSET', keys[i], 'state', state, 'attempts', '0', 'payload', payloads[i])
    elseif not states[i] then
      write_row(keys[i], payloads[i], mode, priority, first, last)
    end
  end
end
for i = 1, #duplicates do
  answer[#answer + 1] = duplicates[i]
end
return answer
