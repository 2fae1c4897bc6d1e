-- exchange: settle what is finished, promote what is due, and claim up to `limit` jobs: one trip for a hand.
-- moves    active -> completed, pending -> completed, scheduled -> completed, dead -> completed, active -> scheduled,
-- moves    active -> pending, active -> dead, active -> cancelled, scheduled -> pending, pending -> active
-- KEYS     pending active schedule completed dead wake meta workers
-- ARGV     child thread lease_ms limit most_bytes max_stalled retention completed settlement...
-- answers  {"exchanged" or "paused" or "unregistered", pending left, us to the next score or -1, refused, claimed,
--          (ticket, word) for each refused, (ticket, fields, payload) for each claimed}
-- include  queue checks ids now_ms rows bell place finish trim settle take sort_out promote_due

-- `completed` counts the tickets that follow and need nothing but "done"; after them a settlement is: verb ticket
-- number text.
q.pending, q.active, q.schedule, q.completed = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
q.dead, q.wake, q.meta, q.workers = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local FIRST = 9
local child, thread = ARGV[1], ARGV[2]
local lease_ms, limit, most_bytes = whole(ARGV[3], 1), whole(ARGV[4], 0, 1000), whole(ARGV[5], 1)
local max_stalled, done = whole(ARGV[6], 0), whole(ARGV[8], 0, 1000)
if not (lease_ms and limit and most_bytes and max_stalled and done) then
  return refuse('lease_ms, limit, most_bytes, max_stalled, completed', 'must be whole numbers in their range')
end
local wrong = read_retention(ARGV[7])
if wrong then
  return wrong
end
local others = #ARGV - FIRST + 1 - done
if others < 0 or others % 4 ~= 0 or others > 4000 then
  return refuse('settlement', 'must be verb, ticket, number and text, for at most 1000 jobs')
end

-- Check.
local settlements, ids = {}, {}
for i = FIRST, FIRST + done - 1 do
  local id, token = split_ticket(ARGV[i])
  wrong = check_settlement('', 'complete', id)
  if wrong then
    return wrong
  end
  local n = #settlements + 1
  settlements[n], ids[n] = {'complete', ARGV[i], '', '', token}, id
end
for i = FIRST + done, #ARGV, 4 do
  local id, token = split_ticket(ARGV[i + 1])
  wrong = check_settlement('', ARGV[i], id, ARGV[i + 2], ARGV[i + 3])
  if wrong then
    return wrong
  end
  local n = #settlements + 1
  settlements[n], ids[n] = {ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], token}, id
end

-- Read.
local is_registered = redis.call('HEXISTS', q.workers, child) == 1
local is_paused, executors = listen()
local first = redis.call('ZRANGE', q.schedule, 0, 0, 'WITHSCORES')
local refused, accepted, leaving, judged, broken = {}, {}, {}, {}, {}
touch_sets()
if #ids > 0 then
  local leases = redis.call('ZMSCORE', q.active, unpack(ids))
  for i, id in ipairs(ids) do
    local settlement, row, word = settlements[i], nil, 'stale'
    if not judged[id] then
      row, word = judge(settlement[1], id, settlement[5], leases[i])
    elseif judged[id] == settlement[2] and settlement[1] == 'complete' then
      word = 'again'
    end
    if word == 'broken' then
      judged[id] = true
      broken[#broken + 1] = row
    elseif word == 'again' then
      judged[id] = settlement[2]
    elseif word then
      refused[#refused + 1] = settlement[2]
      refused[#refused + 1] = word
    else
      judged[id] = settlement[1] == 'complete' and settlement[2] or true
      settlement.row = row
      accepted[#accepted + 1] = settlement
      leaving[#leaving + 1] = id
    end
  end
end

-- Write: first what frees.
if #leaving > 0 then
  redis.call('ZREM', q.active, unpack(leaving))
end
for _, settlement in ipairs(accepted) do
  apply(settlement[1], settlement.row, settlement[3], settlement[4])
end
for _, row in ipairs(broken) do
  bury_broken(row, fault_of(row) or 'unknown')
end
trim_ended()

local is_due = first[2] and tonumber(first[2]) <= now_ms
if is_due then
  promote_due(100)
end
local answer = {'', '', '', digits(#refused / 2), '0'}
for i, text in ipairs(refused) do
  answer[5 + i] = text
end
local pending = redis.call('ZCARD', q.pending)
local word = 'exchanged'
if not is_registered then
  word = 'unregistered'
elseif is_paused then
  word = 'paused'
elseif limit > 0 and pending > 0 then
  local share = math.min(limit, math.ceil(pending / (whole(executors, 1) or 1)))
  local claimed = take(answer, share, child .. ':' .. thread, lease_ms, most_bytes)
  pending = redis.call('ZCARD', q.pending)
  if pending > 0 then
    ring()
  end
  answer[5] = digits(claimed)
end
count_up()
if is_due or others > 0 then
  first = nil
end
answer[1], answer[2], answer[3] = word, digits(pending), next_in_us(first)
return answer
