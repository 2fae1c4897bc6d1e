-- enqueue: add one job, to run now or at its run-at; an id that has a row is left as it is.
-- moves    (new) -> pending, (new) -> scheduled
-- KEYS     job pending schedule wake meta
-- ARGV     id payload mode value priority field...
-- answers  {"enqueued", score or ""} | {"duplicate", state}
-- include  queue checks ids now_ms bell place admit

q.pending, q.schedule, q.wake, q.meta = KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local job = KEYS[1]
local id, payload, mode, value, priority = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local wrong = check_new(id, mode, value, priority, #ARGV - 5)
if wrong then
  return wrong
end
if not payload or payload == '' then
  return refuse('payload', 'must not be empty')
end
local found = state_there(job)
if found then
  return {'duplicate', found}
end
listen()

local due = place_new(id, mode, tonumber(value), tonumber(priority))
write_row(job, payload, mode, tonumber(priority), 6, #ARGV)
return {'enqueued', due}
