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

-- The refusal of one job's argument, with the job's number.
local function of_item(i, wrong)
  return redis.error_reply((string.gsub(wrong.err, ' ', ' items[' .. digits(i - 1) .. '].', 1)))
end

local places, lasts, at = {}, {}, 2
for i = 1, n do
  local fields = whole(ARGV[at + 5], 0, 200)
  if not fields then
    return of_item(i, refuse('fields', 'must be counted by a whole number from 0 to 200'))
  end
  local wrong = check_new(ARGV[at], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], fields)
  if not wrong and ARGV[at + 1] == '' then
    wrong = refuse('payload', 'must not be empty')
  end
  if wrong then
    return of_item(i, wrong)
  end
  places[i], lasts[i] = at, at + 5 + fields
  at = at + 6 + fields
end
if at ~= #ARGV + 1 then
  return refuse('job', 'does not end where the counts say')
end
local admitted, answer, members = {}, {}, {}
for i = 1, n do
  local a = places[i]
  local id, is_now = ARGV[a], ARGV[a + 2] == 'now'
  local found = admitted[id] or state_there(row_key(id))
  if found then
    places[i] = nil
    answer[2 * i - 1], answer[2 * i] = 'duplicate', found
  else
    admitted[id] = is_now and 'pending' or 'scheduled'
    answer[2 * i - 1], answer[2 * i] = 'enqueued', ''
    if is_now then
      members[#members + 1] = 0 - ARGV[a + 4]
      members[#members + 1] = id
    end
  end
end
redis.call('ZCARD', q.pending)
redis.call('ZCARD', q.schedule)
listen()

if #members > 0 then
  redis.call('ZADD', q.pending, unpack(members))
  ring()
end
for i = 1, n do
  local a = places[i]
  if a then
    local id, mode, priority = ARGV[a], ARGV[a + 2], tonumber(ARGV[a + 4])
    if mode ~= 'now' then
      answer[2 * i] = place_new(id, mode, tonumber(ARGV[a + 3]), priority)
    end
    write_row(row_key(id), ARGV[a + 1], mode, priority, a + 6, lasts[i])
  end
end
return answer
