-- enqueue_many: add jobs in order, all or none; ids that have a row are left as they are.
-- moves    (new) -> pending, (new) -> scheduled, pending -> scheduled, scheduled -> pending
-- KEYS     pending schedule wake meta
-- ARGV     group...
-- answers  {score or "" for each group, (number of the job, state, id of the job that is there) for each duplicate}
-- include  queue checks ids now_ms bell place admit
-- seldom   guard

-- A group is jobs that share what is not their own: mode value priority, how many texts of fields follow, these, how
-- many jobs follow, and of each its id and payload. Jobs are numbered from 0. A call that is parked until the job that
-- is there has ended is listed among the duplicates, with the state `parked` and its own id.
q.pending, q.schedule, q.wake, q.meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

-- The refusal of one job's argument, with the job's number.
local function of_item(i, wrong)
  return redis.error_reply((string.gsub(wrong.err, ' ', ' items[' .. digits(i) .. '].', 1)))
end

local groups, ids, keys, payloads, n, at = {}, {}, {}, {}, 0, 1
local seen, has_twins, is_guarded = {}, false, false
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
  local guards
  local guard = fields > 0 and ARGV[at + 4]
  if guard == 'unique' or guard == 'expires' or guard == 'origin' then
    is_guarded = true
    guards, wrong = seldom().read_guards(ARGV, at + 4, first - 2)
    if wrong then
      return of_item(n, wrong)
    end
  end
  groups[#groups + 1] = {mode, tonumber(value), tonumber(priority), at + 4, first - 2, n + 1, n + jobs, guards}
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

local duplicates, states, listed = {}, {}, 0
local function list_duplicate(i, state, id)
  duplicates[listed + 1], duplicates[listed + 2], duplicates[listed + 3] = digits(i - 1), state, id
  listed = listed + 3
end
if has_twins or redis.call('EXISTS', unpack(keys)) > 0 then
  local admitted = {}
  for _, group in ipairs(groups) do
    for i = group[6], group[7] do
      local found = admitted[ids[i]] or state_there(keys[i])
      if found then
        list_duplicate(i, found, ids[i])
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

-- Jobs that may fold into another are admitted one after the other, each as if it came alone.
local function admit_one_by_one(group)
  local mode, value, priority = unpack(group, 1, 3)
  local score = ''
  for i = group[6], group[7] do
    if not states[i] then
      local word, due, id = seldom().admit_guarded(ids[i], payloads[i], mode, value, priority, group[8])
      if word == 'enqueued' then
        score = due
      else
        list_duplicate(i, word, id)
      end
    end
  end
  return score
end

local function admit_all(group)
  local mode, value, priority, first, last = unpack(group, 1, 5)
  local is_now = mode == 'now'
  local set, score, state = q.pending, digits(0 - priority), 'pending'
  local is_earlier = false
  if not is_now then
    local due = price(mode, value)
    set, score, state = q.schedule, digits(due), 'scheduled'
    is_earlier = rings_earlier(due)
  end
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
  return is_now and '' or score
end

local answer = {}
for g, group in ipairs(groups) do
  answer[g] = group[8] and admit_one_by_one(group) or admit_all(group)
end
if is_guarded then
  seldom().count_up()
end
for i = 1, #duplicates do
  answer[#answer + 1] = duplicates[i]
end
return answer
