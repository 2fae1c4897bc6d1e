-- rows: a job's row, read and checked before anything is written.
-- include  queue checks
-- constants  STATE=1 ATTEMPTS=2 UNCOUNTED=3 FAILURES=4 STALLED=5 MAX_ATTEMPTS=6 PRIORITY=7 BACKOFF=8 GROUP=9 RETAIN=10
-- constants  CANCEL=11 REASON=12 ATTACHED=13 UNKNOWN_SINCE=14 PAYLOAD=15 DEFAULT_MAX_ATTEMPTS=3
-- defines  read_row read_held number_of fault_of budget_spent is_elsewhere

local STATES = {scheduled = 1, pending = 1, active = 1, completed = 1, dead = 1, cancelled = 1}
local LIVE = {scheduled = 'schedule', pending = 'pending', active = 'active'}

-- The fields of a row by the numbers above, with its `id`; nil for an id without a row. A key that is no hash answers
-- a row whose `wrong_type` is true. The payload is read only when it is asked for.
local function read_row(id, with_payload)
  local key = base .. 'job:' .. id
  local row
  if with_payload then
    if redis.pcall('HLEN', key) == 3 then
      -- Most jobs differ from no default and were never claimed: that costs less to see than to ask for every field.
      local plain = redis.call('HMGET', key, 'state', 'attempts', 'payload')
      if plain[1] and plain[2] and plain[3] then
        return {plain[1], plain[2], [PAYLOAD] = plain[3], id = id}
      end
    end
    row = redis.pcall('HMGET', key, 'state', 'attempts', 'uncounted', 'failures', 'stalled',
      'max_attempts', 'priority', 'backoff', 'group', 'retain', 'cancel', 'reason', 'attached', 'unknown_since',
      'payload')
  else
    row = redis.pcall('HMGET', key, 'state', 'attempts', 'uncounted', 'failures', 'stalled',
      'max_attempts', 'priority', 'backoff', 'group', 'retain', 'cancel', 'reason', 'attached', 'unknown_since')
  end
  if row.err then
    if not string.find(row.err, 'WRONGTYPE', 1, true) then
      error(row.err)
    end
    return {id = id, wrong_type = true}
  end
  if not row[STATE] and not row[ATTEMPTS] and redis.call('EXISTS', key) == 0 then
    return nil
  end
  row.id = id
  return row
end

-- As read_row, for a job that is to be completed. The claim added `owner` and `started_at` to a plain row's three
-- fields: an active row with five was given nothing else.
local function read_held(id)
  local key = base .. 'job:' .. id
  if redis.pcall('HLEN', key) == 5 then
    local plain = redis.call('HMGET', key, 'state', 'attempts')
    if plain[1] == 'active' and plain[2] then
      plain.id = id
      return plain
    end
  end
  return read_row(id)
end

-- A numeric field that may be missing; its default then.
local function number_of(row, field, default)
  if not row[field] then
    return default or 0
  end
  return tonumber(row[field])
end

-- What makes a row unusable, as a sentence; nil for a sound one.
local function fault_of(row)
  if row.wrong_type then
    return 'the row is not a hash'
  end
  if not row[STATE] then
    return 'the row has no state'
  end
  if not STATES[row[STATE]] then
    return 'the row has an unknown state'
  end
  if not row[ATTEMPTS] then
    return 'the row has no attempts'
  end
  if not whole(row[ATTEMPTS], 0) then
    return 'attempts is not a whole number'
  end
  if row[UNCOUNTED] and not whole(row[UNCOUNTED], 0) then
    return 'uncounted is not a whole number'
  end
  if row[FAILURES] and not whole(row[FAILURES], 0) then
    return 'failures is not a whole number'
  end
  if row[STALLED] and not whole(row[STALLED], 0) then
    return 'stalled is not a whole number'
  end
  if row[MAX_ATTEMPTS] and not whole(row[MAX_ATTEMPTS], 1) then
    return 'max_attempts is not a whole number of 1 or more'
  end
  if row[PRIORITY] and not whole(row[PRIORITY], -100, 100) then
    return 'priority is not a whole number from -100 to 100'
  end
  if row[BACKOFF] and not string.find(row[BACKOFF], '^[%w:.+-]+$') then
    return 'backoff is not one word'
  end
  if row[UNKNOWN_SINCE] and not whole(row[UNKNOWN_SINCE], 0) then
    return 'unknown_since is not a whole number'
  end
  return nil
end

-- Whether a job whose claims so far are `attempts` may not be begun again.
local function budget_spent(row)
  return tonumber(row[ATTEMPTS]) - number_of(row, UNCOUNTED) >= number_of(row, MAX_ATTEMPTS, DEFAULT_MAX_ATTEMPTS)
end

-- Whether a member of the set of `state` has no business there: its row says that it has ended, or that it is live in
-- another set, and it is.
local function is_elsewhere(row, state)
  local says = row[STATE]
  if row.wrong_type or not says or says == state or not STATES[says] then
    return false
  end
  local set = LIVE[says]
  return not set or redis.call('ZSCORE', q[set], row.id) ~= false
end
