-- enqueue: add one job, to run now or at its run-at; an id that has a row is left as it is.
-- moves    (new) -> pending, (new) -> scheduled, pending -> scheduled, scheduled -> pending
-- KEYS     job pending schedule wake meta
-- ARGV     id payload mode value priority field...
-- answers  {"enqueued", score or ""} | {"parked", ""} | {"duplicate", state, id of the job that is there}
-- include  queue
-- seldom   checks ids bell place admit guard

local job, pending_key, schedule_key, wake_key, meta_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, payload, mode, value, priority = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

-- A unique key without a ttl is taken like that when it is free; whatever else guards a job goes the long way.
local free_key
local first_field, rule, next_field = unpack(ARGV, 6, 8)
local is_guarded = first_field == 'unique' or first_field == 'expires' or first_field == 'origin'
if first_field == 'unique' and next_field ~= 'expires' and next_field ~= 'origin' then
  local scope, on_duplicate, key = string.match(rule or '', '^(%l+) ([%l_]+) 0 (.+)$')
  if key and #key <= 1000 and (scope == 'queued' or scope == 'active' or scope == 'exists')
    and (on_duplicate == 'return' or on_duplicate == 'replace' or on_duplicate == 'keep_last')
    and not redis.call('GET', q['unique:' .. key]) then
    free_key = q['unique:' .. key]
  end
end

-- Nearly all jobs are to run now, and plainly sound; they need neither the clock nor the functions of `seldom`.
if mode == 'now' and payload and payload ~= '' and #id <= 64
  and (string.find(id, '^JOB%w+$') or string.find(id, '^JOB[%w_]+$'))
  and (priority == '0' or string.find(priority or '', '^%-?[1-9]%d?$')) and #ARGV % 2 == 1 and #ARGV <= 205
  and (not is_guarded or free_key) and redis.call('EXISTS', job) == 0 then
  local rings = redis.call('LLEN', wake_key) == 0 and not redis.call('HGET', meta_key, 'paused')

  if priority == '0' then
    redis.call('ZADD', pending_key, '0', id)
    redis.call('HSET', job, 'state', 'pending', 'attempts', '0', 'payload', payload, unpack(ARGV, 6))
  else
    redis.call('ZADD', pending_key, 0 - priority, id)
    redis.call('HSET', job, 'state', 'pending', 'attempts', '0', 'payload', payload, 'priority', priority,
      unpack(ARGV, 6))
  end
  if free_key then
    redis.call('HSET', job, 'attached', 'unique')
    redis.call('SET', free_key, id)
  end
  if rings then
    redis.call('RPUSH', wake_key, '1')
  end
  return {'enqueued', ''}
end

q.pending, q.schedule, q.wake, q.meta = pending_key, schedule_key, wake_key, meta_key
local rare = seldom()
local wrong = rare.check_new(id, mode, value, priority, #ARGV - 5)
if wrong then
  return wrong
end
if not payload or payload == '' then
  return rare.refuse('payload', 'must not be empty')
end
local found = rare.state_there(job)
if found then
  return {'duplicate', found, id}
end
rare.listen()
if is_guarded then
  local guards
  redis.call('ZCARD', pending_key)
  redis.call('ZCARD', schedule_key)
  guards, wrong = rare.read_guards(ARGV, 6, #ARGV)
  if wrong then
    return wrong
  end
  local word, score, other = rare.admit_guarded(id, payload, mode, tonumber(value), tonumber(priority), guards)
  rare.count_up()
  if word == 'enqueued' or word == 'parked' then
    return {word, score}
  end
  return {'duplicate', word, other}
end

local due = rare.place_new(id, mode, tonumber(value), tonumber(priority))
rare.write_row(job, payload, mode, tonumber(priority), 6, #ARGV)
return {'enqueued', due}
