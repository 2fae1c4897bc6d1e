-- fire: turn what is due of one schedule into jobs and move its registration on, all or nothing; once for each slot.
-- moves    (new) -> pending, (new) -> scheduled, pending -> scheduled, scheduled -> pending, pending -> cancelled,
-- moves    scheduled -> cancelled, active -> active, scheduled -> (gone)
-- KEYS     repeat pending schedule active parked occurrences workers wake meta
-- ARGV     name generation slot next_slot epoch missed missed_to retention occurrence...
-- answers  {"fired", next slot or "", (slot, word, id or reason) for each occurrence} | {"moved", slot there or ""}
--          | {"missing"} | {"closed", "epoch" or "horizon"} | {"early", now}
-- include  queue checks ids now_ms rows bell place totals admit unique tell guard finish trim registration

-- Fires only while `slot` is the registration's next one, and the generation is its own: a call that is sent again
-- finds that it has moved. An occurrence is: what to do, id, slot, run-at or "", how many slots it stands for besides
-- its own, and a payload or "" for the registration's. What to do is `fire`, or the reason for which it is skipped.
-- `missed` counts slots up to `missed_to` that are no occurrences.
--
-- The words: fired; parked, until the occurrence before it has ended; folded, into the job that holds its unique key;
-- there, for an id that has a row; skipped, for overlap, no_worker, duplicate or the given reason; beyond, of max_runs.
q['repeat'], q.pending, q.schedule, q.active, q.parked = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
q.occurrences, q.workers, q.wake, q.meta = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local name, generation, slot, next_slot, epoch = ARGV[1], ARGV[2], whole(ARGV[3], 0), ARGV[4], ARGV[5]
local missed, missed_to, retention = whole(ARGV[6], 0), ARGV[7], ARGV[8]

-- Check.
local wrong = check_name(name) or read_retention(retention)
if wrong then
  return wrong
end
if not slot then
  return refuse('slot', 'must be a whole number of milliseconds, 0 or more')
end
if next_slot ~= '' and not whole(next_slot, slot + 1) then
  return refuse('next_slot', 'must be a whole number of milliseconds after slot, or empty')
end
if not missed then
  return refuse('missed', 'must be a whole number, 0 or more')
end
if missed == 0 and missed_to ~= '' or missed > 0 and not whole(missed_to, slot) then
  return refuse('missed_to', 'must be a whole number of milliseconds from slot on, or empty where nothing is missed')
end
local latest = math.max(slot, whole(missed_to, 0) or 0)
local occurrences, seen, fireable, at = {}, {}, nil, slot - 1
if (#ARGV - 8) % 6 ~= 0 or #ARGV > 6008 then
  return refuse('occurrence', 'must be six texts: what to do, id, slot, run-at, missed, payload; at most 1000 times')
end
for i = 9, #ARGV, 6 do
  local one = {
    how = ARGV[i], id = ARGV[i + 1], slot = whole(ARGV[i + 2], at + 1), run_at = ARGV[i + 3],
    missed = whole(ARGV[i + 4], 0), payload = ARGV[i + 5],
  }
  if not string.find(one.how, '^[a-z_]+$') or #one.how > 40 then
    return refuse('occurrence', 'must begin with fire, or with a reason of at most 40 small letters and _')
  end
  if not is_job_id(one.id) then
    return redis.error_reply('EMQKIND id must be JOB and 1 to 61 letters, digits or _')
  end
  if seen[one.id] then
    return refuse('id', 'must not come twice')
  end
  if not one.slot or (next_slot ~= '' and one.slot >= tonumber(next_slot)) then
    return refuse('occurrence', 'must have a slot after the one before it, from slot on and before next_slot')
  end
  if one.run_at ~= '' and not whole(one.run_at, 0) then
    return refuse('run_at', 'must be a whole number of milliseconds, 0 or more, or empty')
  end
  if not one.missed then
    return refuse('missed', 'must be a whole number, 0 or more')
  end
  seen[one.id], at = true, one.slot
  occurrences[#occurrences + 1] = one
  if one.how == 'fire' then
    fireable = one
  end
end
latest = math.max(latest, at)

-- Read.
local record = q['repeat:' .. name]
local there = redis.call('HMGET', record, 'generation', 'payload', 'template', 'fields', 'priority', 'overlap',
  'skip_if_no_worker', 'max_runs', 'runs', 'skipped', 'missed', 'last', 'parked')
local score = redis.call('ZSCORE', q['repeat'], name)
if redis.call('EXISTS', record) == 0 then
  redis.call('ZREM', q['repeat'], name)
  return {'missing'}
end
if (there[1] or '') ~= generation or not score or tonumber(score) ~= slot then
  return {'moved', slot_of(score)}
end
local fence = redis.call('HMGET', q.meta, 'epoch', 'horizon')
if (fence[1] or '') ~= epoch then
  return {'closed', 'epoch'}
end
if fence[1] and now_ms > (whole(fence[2], 0) or 0) then
  return {'closed', 'horizon'}
end
if fireable and fireable.slot > now_ms then
  return {'early', now_text}
end
local payload, own, priority = there[2] or there[3] or '', unpacked_texts(there[4] or ''), there[5] or '0'
local overlap, most = there[6] or 'skip', there[8] or ''
local runs, skipped = whole(there[9] or '0', 0), whole(there[10] or '0', 0)
local missed_before = whole(there[11] or '0', 0)
if payload == '' or not own or not runs or not skipped or not missed_before or (most ~= '' and not whole(most, 1)) then
  return redis.error_reply('EMQSTATE fire broken registration')
end
wrong = check_new('JOB0', 'now', '', priority, #own)
if wrong then
  return wrong
end
most = most == '' and LARGEST or tonumber(most)

-- The fields of each job, with the guards before the others: `origin` and `missed` are each one's own.
local texts, n, first_other = {}, 0, 1
while own[first_other] == 'unique' or own[first_other] == 'expires' do
  texts[n + 1], texts[n + 2] = own[first_other], own[first_other + 1]
  n, first_other = n + 2, first_other + 2
end
local origin_at = n + 2
texts[n + 1], texts[n + 2] = 'origin', ''
n = n + 2
for i = first_other, #own do
  n = n + 1
  texts[n] = own[i]
end
texts[n + 1], texts[n + 2] = 'missed', ''
local guards
guards, wrong = read_guards(texts, 1, n)
if not guards then
  return wrong
end

-- The row of a job that is live, and is where its row says.
local function live(id)
  local row = id and id ~= '' and read_row(id)
  if not row or fault_of(row) or not LIVE[row[STATE]] then
    return nil
  end
  return redis.call('ZSCORE', q[row[AFTER] and 'parked' or LIVE[row[STATE]]], id) and row or nil
end

local last, parked = there[12] or '', there[13] or ''
local last_row
local parked_row = live(parked)
if parked_row and not parked_row[AFTER] then -- It is the one that runs by now.
  last, parked, last_row, parked_row = parked, '', parked_row, nil
else
  last_row = live(last)
end
local overlaps = overlap ~= 'allow' and (last_row or parked_row) ~= nil
local has_worker = true
if there[7] == '1' then
  has_worker = false
  local all = redis.call('HGETALL', q.workers)
  for i = 1, #all, 2 do
    local seen_at, lease = string.match(all[i + 1], '^(%d+) (%d+) ')
    has_worker = has_worker or (seen_at and tonumber(seen_at) + tonumber(lease) > now_ms)
  end
end
touch_sets()
redis.call('XLEN', q.occurrences)
listen()

-- Write.

-- Makes room for an occurrence that replaces the one before it: what is parked goes, what waits is cancelled, and what
-- runs is asked to end.
local function replace()
  if parked_row then
    redis.call('ZREM', q.parked, parked_row.id)
    tell_end(parked_row, 'replaced')
    forget({parked_row}, true)
    parked, parked_row = '', nil
  end
  if last_row and last_row[STATE] == 'active' then
    redis.call('HSET', row_key(last_row.id), 'cancel', '1')
  elseif last_row then
    redis.call('ZREM', q.pending, last_row.id)
    redis.call('ZREM', q.schedule, last_row.id)
    finish(last_row, 'cancelled', 'reason', 'replaced')
    last_row = nil
  end
end

-- Admits one occurrence; answers its word and the id of the job or the reason.
local function admit(one)
  if overlaps and overlap == 'replace' then
    replace()
  end
  texts[origin_at] = 'schedule ' .. name .. ' ' .. digits(one.slot)
  texts[n + 2] = digits(one.missed)
  guards.last = one.missed > 0 and n + 2 or n
  guards.after = overlaps and last_row
  local run_at = whole(one.run_at, now_ms + 1)
  local word, _, id, stands = admit_guarded(one.id, one.payload ~= '' and one.payload or payload,
    run_at and 'at' or 'now', run_at, tonumber(priority), guards)
  if word == 'parked' then
    parked = id
    return 'parked', id
  elseif word == 'enqueued' or stands then
    last = id
    return word == 'enqueued' and 'fired' or 'folded', id
  end
  return 'skipped', 'duplicate', id
end

local function what_becomes_of(one)
  if one.how ~= 'fire' then
    return 'skipped', one.how
  elseif runs >= most then
    return 'beyond', ''
  elseif not has_worker then
    return 'skipped', 'no_worker'
  elseif state_there(row_key(one.id)) then
    return 'there', one.id
  elseif overlaps and (overlap == 'skip' or one ~= fireable or (overlap == 'queue_one' and parked_row)) then
    return 'skipped', 'overlap'
  end
  return admit(one)
end

local answer, entries, m = {'fired', ''}, {}, 2
if missed > 0 then
  entries[1] = {'slot', missed_to, 'decision', 'missed', 'slots', digits(missed)}
end
for _, one in ipairs(occurrences) do
  local word, text, other = what_becomes_of(one)
  answer[m + 1], answer[m + 2], answer[m + 3] = digits(one.slot), word, text
  m = m + 3
  if word == 'skipped' then
    skipped = skipped + 1
    entries[#entries + 1] = {'slot', digits(one.slot), 'decision', 'skipped', 'reason', text, 'job', other or ''}
  elseif word ~= 'beyond' then
    runs = runs + 1
    entries[#entries + 1] = {'slot', digits(one.slot), 'decision', 'fired', 'reason', word, 'job', text}
  end
end
local is_over = next_slot == '' or runs >= most
answer[2] = is_over and '' or next_slot
missed = missed_before + missed
redis.call('HSET', record, 'runs', digits(runs), 'skipped', digits(skipped), 'missed', digits(missed), 'last', last,
  'parked', parked, 'last_slot', digits(latest), 'finished', is_over and '1' or '')
redis.call('ZADD', q['repeat'], is_over and 'inf' or next_slot, name)
if #entries == 0 then
  entries[1] = {'slot', digits(slot), 'decision', 'none'}
end
for i = 1, #entries - 1 do
  tell('schedule', name, 'at', now_text, unpack(entries[i]))
end
-- The last one says how the registration stands now.
tell('schedule', name, 'at', now_text, 'next', answer[2], 'runs', digits(runs), 'skipped', digits(skipped),
  'missed', digits(missed), unpack(entries[#entries]))
trim_ended()
count_up()
return answer
