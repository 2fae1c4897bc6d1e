-- remove: delete a job that nobody holds, with everything that belongs to it.
-- moves    pending -> (gone), scheduled -> (gone), completed -> (gone), dead -> (gone), cancelled -> (gone),
-- moves    scheduled -> pending
-- KEYS     job pending schedule active completed dead cancelled expiry
-- ARGV     id
-- answers  {"removed"} | {"missing"}
-- include  queue checks ids now_ms rows bell finish

q.pending, q.schedule, q.active, q.completed = KEYS[2], KEYS[3], KEYS[4], KEYS[5]
q.dead, q.cancelled, q.expiry = KEYS[6], KEYS[7], KEYS[8]
local id = ARGV[1]
if not is_job_id(id) then
  return redis.error_reply('EMQKIND id must be JOB and 1 to 61 letters, digits or _')
end
local sets = {q.pending, q.schedule, q.completed, q.dead, q.cancelled, q.expiry}
local row = read_row(id)
if redis.call('ZSCORE', q.active, id) and row then
  return redis.error_reply('EMQSTATE remove active')
end
listen()
redis.call('ZCARD', q.parked)
local found = row ~= nil
for _, set in ipairs(sets) do
  found = redis.call('ZSCORE', set, id) and true or found
end
if not found then
  return {'missing'}
end

for _, set in ipairs(sets) do
  redis.call('ZREM', set, id)
end
forget({row or {id = id}})
return {'removed'}
