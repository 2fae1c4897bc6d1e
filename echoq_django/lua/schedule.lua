-- schedule: add one job to run at an instant or after a delay (EchoMQ's verb, with its wire line).
-- moves    (new) -> scheduled
-- KEYS     job schedule
-- ARGV     id payload mode value
-- answers  1 | 0 for an id that has a row
-- include  queue checks ids now_ms bell place admit

q.schedule = KEYS[2]
local job = KEYS[1]
local id, payload, mode, value = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

if mode ~= 'in' and mode ~= 'at' then
  return refuse('mode', 'must be in or at')
end
local wrong = check_new(id, mode, value, '0', 0)
if wrong then
  return wrong
end
if redis.call('EXISTS', job) == 1 then
  return 0
end
listen()

place_new(id, mode, tonumber(value), 0)
write_row(job, payload, mode, 0, 1, 0)
return 1
