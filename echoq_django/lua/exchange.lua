-- exchange: settle what is finished, promote what is due, and claim up to `limit` jobs: one trip for a hand.
-- moves    active -> completed, pending -> completed, scheduled -> completed, dead -> completed, active -> scheduled,
-- moves    active -> pending, active -> dead, active -> cancelled, scheduled -> pending, pending -> active,
-- moves    scheduled -> cancelled, pending -> cancelled
-- KEYS     pending active schedule completed dead wake meta workers
-- ARGV     child thread lease_ms limit most_bytes max_stalled retention completed settlement...
-- answers  {"exchanged" or "paused" or "unregistered", pending left, us to the next score or -1, refused, claimed,
--          (ticket, word) for each refused, (ticket, fields, payload) for each claimed}; the numbers are whole numbers
-- include  queue checks ids now_ms totals take
-- seldom   bell finish trim settle settle_many promote_due

-- `completed` counts the tickets that follow and need nothing but "done"; after them a settlement is: verb ticket
-- number text.
--
-- This is the hot path of every worker. What nearly all jobs need stands here in one piece; whatever is not plainly
-- sound goes to the functions of `seldom`, which are made when one is wanted.
-- The keys are locals here, since a table costs more; `dead` is derived when it is needed.
local pending_key, active_key, schedule_key, completed_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local wake_key, meta_key, workers_key = KEYS[6], KEYS[7], KEYS[8]
local child, thread, retention = ARGV[1], ARGV[2], ARGV[7]
if not retention or retention == '' then
  retention = DEFAULT_RETENTION
end
local lease_ms, limit, most_bytes, max_stalled, keep_for, keep_most, done
if ARGV[8] then
  lease_ms, limit, most_bytes, max_stalled, keep_for, keep_most, done = string.match(
    ARGV[3] .. ',' .. ARGV[4] .. ',' .. ARGV[5] .. ',' .. ARGV[6] .. ',' .. retention .. ',' .. ARGV[8],
    '^(%d+),(%d+),(%d+),(%d+),(%d+),%d+,%d+,(%d+),%d+,%d+,(%d+)$')
end
if not done then
  return seldom().read_retention(retention)
    or refuse('lease_ms, limit, most_bytes, max_stalled, completed', 'must be whole numbers')
end
lease_ms, limit, most_bytes, done = lease_ms + 0, limit + 0, most_bytes + 0, done + 0
keep_for, keep_most = keep_for + 0, keep_most + 0
if lease_ms < 1 or lease_ms > LARGEST or limit > 1000 or most_bytes < 1 or most_bytes > LARGEST
  or #max_stalled > 15 or done > 1000 then
  return refuse('lease_ms, limit, most_bytes, max_stalled, completed', 'must be whole numbers in their range')
end
local others = #ARGV - 8 - done
if others < 0 or others % 4 ~= 0 or others > 4000 then
  return refuse('settlement', 'must be verb, ticket, number and text, for at most 1000 jobs')
end

-- Check.
local ids, tokens = {}, {}
for i = 1, done do
  local id, token = split_ticket(ARGV[8 + i])
  if not id then
    return seldom().check_settlement('', 'complete')
  end
  ids[i], tokens[i] = id, token
end
for i = 9 + done, #ARGV, 4 do
  local wrong = seldom().check_settlement('', ARGV[i], split_ticket(ARGV[i + 1]), ARGV[i + 2], ARGV[i + 3])
  if wrong then
    return wrong
  end
end

-- Read.
local call, try = redis.call, redis.pcall
local is_registered = call('HEXISTS', workers_key, child) == 1
local is_paused = call('HGET', meta_key, 'paused')
local may_claim = limit > 0 and is_registered and not is_paused
local first = call('ZRANGE', schedule_key, '0', '0', 'WITHSCORES')
local is_due = first[2] and tonumber(first[2]) <= now_ms
local pending = call('ZCARD', pending_key)
local executors, is_silent
if may_claim and (pending > 1 or is_due or others > 0) then
  executors = limit > 1 and call('HGET', meta_key, 'executors')
  is_silent = call('LLEN', wake_key) == 0
end

-- Whom the tickets belong to: a hand that comes back as it was claimed lies in `active` one beside the other.
local rank, leases
if done == 0 then
  call('ZCARD', active_key)
else
  rank = call('ZRANK', active_key, ids[1])
  if rank and done > 1 then
    local held = call('ZRANGE', active_key, digits(rank), digits(rank + done - 1))
    for i = 2, done do
      if held[i] ~= ids[i] then
        rank = false
        break
      end
    end
  end
  if not rank then
    leases = call('ZMSCORE', active_key, unpack(ids))
  end
end

local gone, kept, ended, expiring, n, rest, freed = {}, {}, {}, {}, 0, nil, nil
local settled = {} -- by id: the ticket of a completion, which may come twice
for i = 1, done do
  local id, ticket = ids[i], ARGV[8 + i]
  local key = row_prefix .. id
  local row = try('HMGET', key, 'attempts', 'retain', 'attached')
  local own, attached, held = row[2], row[3], nil
  if attached == 'unique' then -- A key that is to go with the job; one that another call waits for goes the long way.
    local scope, unique_key = string.match(call('HGET', key, 'unique') or '', '^(%l+) %S+ %d+ (.+)$')
    if (scope == 'active' or scope == 'queued') and try('GET', q['unique-next:' .. unique_key]) == false then
      attached, held = false, q['unique:' .. unique_key]
    end
  end
  if row[1] == tokens[i] and not attached and (rank or leases[i])
    and not settled[id] and (not own or string.find(own, '^%d+$')) then
    n = n + 1
    if held then
      freed = freed or {}
      freed[id] = held
    end
    if not rank or others > 0 then
      settled[id] = ticket
    end
    local keep = own and tonumber(own) or keep_for
    if keep == 0 or keep_most == 0 then
      gone[#gone + 1] = key
    else
      local k = #kept + 1
      kept[k], ended[2 * k - 1], ended[2 * k] = key, now_text, id
      if own then
        local e = #expiring + 1
        expiring[e], expiring[e + 1] = digits(now_ms + keep), id
      end
    end
  else
    rest = rest or {}
    rest[#rest + 1] = {'complete', ticket, '', '', id, tokens[i]}
    ids[i] = false
  end
end
for i = 9 + done, #ARGV, 4 do
  local id, token = split_ticket(ARGV[i + 1])
  rest = rest or {}
  rest[#rest + 1] = {ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], id, token}
end
local over, is_old, own_rules = 0, false, 0
if #kept > 0 then
  over = call('ZCARD', completed_key) + #kept - keep_most
  local oldest = call('ZRANGE', completed_key, '0', '0', 'WITHSCORES')
  is_old = oldest[2] and tonumber(oldest[2]) <= now_ms - keep_for
  own_rules = (over > 0 or #expiring > 0) and call('ZCARD', q.expiry)
end
local rare = (rest or is_due or is_old) and seldom()
local refused = {}
if rare then
  rare.read_retention(retention)
  rare.touch_sets()
  rare.listen()
  if rest then
    refused = rare.judge_all(rest, settled)
  end
end

-- Write: first what frees.
if n > 0 and n == done and rank then
  call('ZREMRANGEBYRANK', active_key, digits(rank), digits(rank + done - 1))
elseif n > 0 then
  local leaving = {}
  for i = 1, done do
    if ids[i] then
      leaving[#leaving + 1] = ids[i]
    end
  end
  call('ZREM', active_key, unpack(leaving))
end
if #gone > 0 then
  call('UNLINK', unpack(gone))
end
if freed then
  for id, unique_key in pairs(freed) do
    if try('GET', unique_key) == id then
      call('DEL', unique_key)
    end
  end
end
for i = 1, #kept do
  call('HSET', kept[i], 'state', 'completed')
end
for i = 1, #ended, 1000 do
  call('ZADD', completed_key, unpack(ended, i, math.min(i + 999, #ended)))
end
for i = 1, #expiring, 1000 do
  call('ZADD', q.expiry, unpack(expiring, i, math.min(i + 999, #expiring)))
end
totals.completed = n > 0 and n or nil
if rare then
  rare.apply_all()
  rare.trim_ended()
elseif over > 0 then
  -- A little faster than it grows.
  local ids_over, keys = call('ZRANGE', completed_key, '0', math.min(over, #kept + 16, 200) - 1), {}
  for i = 1, #ids_over do
    local key = row_prefix .. ids_over[i]
    local row = try('HMGET', key, 'state', 'attached')
    if row[1] ~= 'completed' or row[2] then
      keys = nil
      break
    end
    keys[i] = key
  end
  if keys then
    call('ZREMRANGEBYRANK', completed_key, '0', #keys - 1)
    if own_rules > 0 then
      call('ZREM', q.expiry, unpack(ids_over))
    end
    call('UNLINK', unpack(keys))
  else
    seldom().drop(completed_key, ids_over, 'completed')
  end
end

if is_due then
  rare.promote_due(100)
end
if rare then
  pending = call('ZCARD', pending_key)
end
local answer = {'exchanged', 0, -1, #refused / 2, 0, unpack(refused)}
if not is_registered then
  answer[1] = 'unregistered'
elseif is_paused then
  answer[1] = 'paused'
elseif may_claim and pending > 0 then
  q.pending, q.active = pending_key, active_key
  local share = math.min(limit, math.ceil(pending / math.max(tonumber(executors or 1) or 1, 1)))
  local claimed, seen = take(answer, share, child .. ':' .. thread, lease_ms, most_bytes, retention)
  pending = pending - seen
  if pending > 0 and rare then
    rare.ring()
  elseif pending > 0 and is_silent then
    call('RPUSH', wake_key, '1')
  end
  answer[5] = claimed
end
count_up()
if is_due or others > 0 then
  first = call('ZRANGE', schedule_key, '0', '0', 'WITHSCORES')
end
answer[2] = pending
if first[2] then
  answer[3] = math.min(math.max(0, tonumber(first[2]) * 1000 - now_us), LARGEST)
end
return answer
