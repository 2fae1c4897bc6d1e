-- enroll: register a schedule with all that its jobs need, or change its registration; an older definition is refused.
-- moves    none
-- KEYS     repeat meta
-- ARGV     name seq generation next_slot definition payload priority overlap skip_if_no_worker max_runs paused runs
--          skipped missed last_slot field...
-- answers  {"created" or "changed" or "unchanged", next slot or ""} | {"stale"}
-- include  queue checks ids now_ms rows bell place totals admit unique tell guard registration

-- `seq` was drawn by `sequence` before the schedule was read. A generation that is there keeps its next slot, unless it
-- was paused or that slot is not after `last_slot`; otherwise it is `next_slot`, or none if that is "". Counts and
-- `last_slot` never go back. Of the fields, `unique` comes first and then `expires`.
q['repeat'], q.meta = KEYS[1], KEYS[2]
local name, seq, generation, next_slot = ARGV[1], whole(ARGV[2], 1), ARGV[3], ARGV[4]
local definition, payload, priority, overlap = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local skip_if_no_worker, max_runs, is_paused = ARGV[9], ARGV[10], ARGV[11]
local runs, skipped, missed, last_slot = whole(ARGV[12], 0), whole(ARGV[13], 0), whole(ARGV[14], 0), ARGV[15]

-- Check.
local wrong = check_name(name)
if wrong then
  return wrong
end
if not seq then
  return refuse('seq', 'must be a whole number of 1 or more')
end
if not generation or generation == '' then
  return refuse('generation', 'must not be empty')
end
if next_slot ~= '' and not whole(next_slot, 0) then
  return refuse('next_slot', 'must be a whole number of milliseconds, 0 or more, or empty')
end
if not payload or payload == '' then
  return refuse('payload', 'must not be empty')
end
if not ({skip = 1, allow = 1, queue_one = 1, replace = 1})[overlap] then
  return refuse('overlap', 'must be skip, allow, queue_one or replace')
end
if skip_if_no_worker ~= '' and skip_if_no_worker ~= '1' then
  return refuse('skip_if_no_worker', 'must be 1 or empty')
end
if max_runs ~= '' and not whole(max_runs, 1) then
  return refuse('max_runs', 'must be a whole number of 1 or more, or empty')
end
if is_paused ~= '' and is_paused ~= '1' then
  return refuse('paused', 'must be 1 or empty')
end
if not runs or not skipped or not missed then
  return refuse('runs, skipped and missed', 'must be whole numbers, 0 or more')
end
if last_slot ~= '' and not whole(last_slot, 0) then
  return refuse('last_slot', 'must be a whole number of milliseconds, 0 or more, or empty')
end
wrong = check_new('JOB0', 'now', '', priority, #ARGV - 15)
if wrong then
  return wrong
end
local guards
guards, wrong = read_guards(ARGV, 16, #ARGV)
if not guards then
  return wrong
end
if guards.has_origin then
  return refuse('origin', 'is written by fire')
end

-- Read.
local record = q['repeat:' .. name]
local there = redis.call('HMGET', record, 'generation', 'definition', 'payload', 'priority', 'overlap',
  'skip_if_no_worker', 'max_runs', 'paused', 'runs', 'skipped', 'missed', 'last_slot', 'finished', 'fields', 'seq')
local is_there = redis.call('EXISTS', record) == 1
local score = redis.call('ZSCORE', q['repeat'], name)
local facts = redis.call('HMGET', q.meta, 'sequence', 'unregistered')
local newest = is_there and whole(there[15], 0) or 0
if not is_there then
  newest = (whole(facts[2], 0) or 0) + 1
end
if seq < newest or seq > (whole(facts[1], 0) or 0) then
  return {'stale'}
end
runs = math.max(runs, whole(there[9], 0) or 0)
skipped = math.max(skipped, whole(there[10], 0) or 0)
missed = math.max(missed, whole(there[11], 0) or 0)
local cursor = math.max(whole(last_slot, 0) or -1, whole(there[12], 0) or -1)
local is_over = next_slot == '' or (max_runs ~= '' and runs >= tonumber(max_runs))
local slot = slot_of(score)
if is_over or is_paused ~= '' then
  slot = ''
elseif there[1] ~= generation or there[8] == '1' or slot == '' or tonumber(slot) <= cursor then
  slot = digits(tonumber(next_slot))
end
local fields = {
  generation, definition, payload, digits(tonumber(priority)), overlap, skip_if_no_worker, max_runs, is_paused,
  digits(runs), digits(skipped), digits(missed), cursor < 0 and '' or digits(cursor), is_over and '1' or '',
  packed_texts(ARGV, 16, #ARGV),
}
local is_equal = is_there and score and slot == slot_of(score)
for i = 1, #fields do
  is_equal = is_equal and fields[i] == there[i]
end

-- Write.
redis.call('HSET', record, 'seq', digits(seq))
if is_equal then
  return {'unchanged', slot}
end
redis.call('HSET', record, 'generation', fields[1], 'definition', fields[2], 'payload', fields[3],
  'priority', fields[4], 'overlap', fields[5], 'skip_if_no_worker', fields[6], 'max_runs', fields[7],
  'paused', fields[8], 'runs', fields[9], 'skipped', fields[10], 'missed', fields[11], 'last_slot', fields[12],
  'finished', fields[13], 'fields', fields[14])
redis.call('HDEL', record, 'every_ms', 'template')
redis.call('ZADD', q['repeat'], slot == '' and 'inf' or slot, name)
return {is_there and 'changed' or 'created', slot}
