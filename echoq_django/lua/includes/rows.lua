-- rows: a job's row, read and checked before anything is written.
-- include  queue checks now_ms
-- constants  STATE=1 ATTEMPTS=2 UNCOUNTED=3 FAILURES=4 STALLED=5 MAX_ATTEMPTS=6 PRIORITY=7 BACKOFF=8 TIMEOUT=9
-- constants  ON_ERROR=10 UNKNOWN_SINCE=11 RETAIN=12 ATTACHED=13 REASON=14 CANCEL=15 GROUP=16 EXPIRES=17 EXPIRES_AT=18
-- constants  UNIQUE=19 UNIQUE_UNTIL=20 AFTER=21 NEXT=22 ORIGIN=23 DEFAULT_MAX_ATTEMPTS=3
-- defines  read_row read_to_drop number_of fault_of budget_spent has_expired is_elsewhere attach LIVE

local STATES = {scheduled = 1, pending = 1, active = 1, completed = 1, dead = 1, cancelled = 1}
local LIVE = {scheduled = 'schedule', pending = 'pending', active = 'active'}

-- What a call for a row answered: the row, nil for an id without one, or a row whose `wrong_type` is true for a key
-- that is no hash.
local function as_row(id, row)
  if row.err then
    if not string.find(row.err, 'WRONGTYPE', 1, true) then
      error(row.err)
    end
    return {id = id, wrong_type = true}
  end
  if not row[STATE] and not row[ATTEMPTS] and redis.call('EXISTS', row_key(id)) == 0 then
    return nil
  end
  row.id = id
  return row
end

-- The fields of a row by the numbers above, with its `id`, but for the payload.
local function read_row(id)
  return as_row(id, redis.pcall('HMGET', row_key(id), 'state', 'attempts', 'uncounted', 'failures', 'stalled',
    'max_attempts', 'priority', 'backoff', 'timeout', 'on_error', 'unknown_since', 'retain', 'attached', 'reason',
    'cancel', 'group', 'expires', 'expires_at', 'unique', 'unique_until', 'after', 'next',
    'origin'))
end

-- As read_row, with what a removal needs.
local function read_to_drop(id)
  local row = redis.pcall('HMGET', row_key(id), 'state', 'attached')
  if not row.err then
    row = {row[1], false, [ATTACHED] = row[2]}
  end
  return as_row(id, row)
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
  if row[TIMEOUT] and not whole(row[TIMEOUT], 1) then
    return 'timeout is not a whole number of 1 or more'
  end
  if row[ON_ERROR] and string.find(row[ON_ERROR], '[,=]') then
    return 'on_error has a comma or an equals sign'
  end
  if row[UNKNOWN_SINCE] and not whole(row[UNKNOWN_SINCE], 0) then
    return 'unknown_since is not a whole number'
  end
  if row[EXPIRES] and not whole(row[EXPIRES], 1) then
    return 'expires is not a whole number of 1 or more'
  end
  if row[EXPIRES_AT] and not whole(row[EXPIRES_AT], 0) then
    return 'expires_at is not a whole number'
  end
  if row[UNIQUE_UNTIL] and not whole(row[UNIQUE_UNTIL], 0) then
    return 'unique_until is not a whole number'
  end
  return nil
end

-- Whether a job whose claims so far are `attempts` may not be begun again.
local function budget_spent(row)
  return tonumber(row[ATTEMPTS]) - number_of(row, UNCOUNTED) >= number_of(row, MAX_ATTEMPTS, DEFAULT_MAX_ATTEMPTS)
end

-- Whether it is too late to begin a job.
local function has_expired(row)
  return row[EXPIRES_AT] and tonumber(row[EXPIRES_AT]) <= now_ms
end

-- Notes in a row that something goes with it: `job:<id>:<part>`, or the unique key that it names.
local function attach(row, part)
  local listed = row[ATTACHED]
  if listed and string.find(',' .. listed .. ',', ',' .. part .. ',', 1, true) then
    return
  end
  row[ATTACHED] = listed and listed .. ',' .. part or part
  redis.call('HSET', row_key(row.id), 'attached', row[ATTACHED])
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
