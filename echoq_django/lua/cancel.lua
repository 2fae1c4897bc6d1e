-- cancel: end a job that waits; ask for the end of one that runs.
-- moves    pending -> cancelled, scheduled -> cancelled, active -> active, scheduled -> pending
-- KEYS     job pending schedule active cancelled
-- ARGV     id reason retention
-- answers  {"cancelled"} | {"cancelling"} | {"missing"}
-- include  queue checks ids now_ms rows bell totals finish trim

q.pending, q.schedule, q.active, q.cancelled = KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, reason = ARGV[1], ARGV[2]
if not is_job_id(id) then
  return redis.error_reply('EMQKIND id must be JOB and 1 to 61 letters, digits or _')
end
local wrong = read_retention(ARGV[3])
if wrong then
  return wrong
end
local row = read_row(id)
if not row then
  return {'missing'}
end
touch_sets()
listen()
local fault = fault_of(row)
if fault then
  bury_broken(row, fault)
  count_up()
  return redis.error_reply('EMQSTATE broken row, buried')
end
if row[STATE] == 'active' and redis.call('ZSCORE', q.active, id) then
  redis.call('HSET', KEYS[1], 'cancel', '1')
  return {'cancelling'}
end
if row[STATE] ~= 'pending' and row[STATE] ~= 'scheduled' then
  return redis.error_reply('EMQSTATE cancel ' .. row[STATE])
end

redis.call('ZREM', q.pending, id)
redis.call('ZREM', q.schedule, id)
finish(row, 'cancelled', 'reason', reason ~= '' and reason or 'cancelled')
trim_ended()
count_up()
return {'cancelled'}
