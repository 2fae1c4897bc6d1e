-- admit: makes the row of a new job and gives the job its place.
-- include  queue checks ids now_ms bell place
-- defines  price check_new state_there place_new write_row

local function price(mode, value)
  if mode == 'at' then
    return value
  end
  return from_ms + value
end

-- Why a new job may not be admitted, as an error; nil when it may. `value` is needed by the modes 'in' and 'at'.
local function check_new(id, mode, value, priority, fields)
  if not is_job_id(id) then
    return redis.error_reply('EMQKIND id must be JOB and 1 to 61 letters, digits or _')
  end
  if mode ~= 'now' and mode ~= 'in' and mode ~= 'at' then
    return refuse('mode', 'must be now, in or at')
  end
  if mode ~= 'now' and not whole(value, 0) then
    return refuse('value', 'must be a whole number of milliseconds, 0 or more')
  end
  if mode == 'in' and not whole(value, 0, LARGEST - from_ms) then
    return refuse('value', 'is a delay beyond every date')
  end
  if not whole(priority, -100, 100) then
    return refuse('priority', 'must be a whole number from -100 to 100')
  end
  if fields % 2 ~= 0 or fields > 200 then
    return refuse('fields', 'must come in pairs of name and value, at most 100 of them')
  end
  return nil
end

-- The state that the row at `key` names: '' when it names none, nil without a row.
local function state_there(key)
  if redis.call('EXISTS', key) == 0 then
    return nil
  end
  local state = redis.pcall('HGET', key, 'state')
  return type(state) == 'string' and state or ''
end

-- Gives one new job its place; a set of a wrong type fails here, before there is a row. Answers the score of a
-- scheduled job as digits, else ''.
local function place_new(id, mode, value, priority)
  if mode == 'now' then
    place(id, priority)
    ring()
    return ''
  end
  local score = price(mode, value)
  local earlier = rings_earlier(score)
  local due = digits(score)
  redis.call('ZADD', q.schedule, due, id)
  if earlier then
    ring()
  end
  return due
end

-- Writes the row of a new job. `first` to `last` are the places of its further fields in ARGV.
local function write_row(key, payload, mode, priority, first, last)
  local state = mode == 'now' and 'pending' or 'scheduled'
  if priority == 0 then
    redis.call('HSET', key, 'state', state, 'attempts', '0', 'payload', payload, unpack(ARGV, first, last))
  else
    redis.call('HSET', key, 'state', state, 'attempts', '0', 'payload', payload, 'priority', digits(priority),
      unpack(ARGV, first, last))
  end
end
