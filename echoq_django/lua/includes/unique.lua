-- unique: keys that one job at a time may hold, and calls that are parked until their owner has ended.
-- include  queue checks now_ms rows bell place
-- defines  read_unique id_in holder_of park let_go take_back unpark

-- A row's `unique` is what its producer sent: `<scope> <on_duplicate> <ttl in ms or 0> <key>`. `unique:<key>` holds the
-- owner's id; a holder that is in no state of its scope, or whose `unique_until` has come, holds nothing.
local SCOPES = {
  queued = {scheduled = 1, pending = 1},
  active = {scheduled = 1, pending = 1, active = 1},
  exists = {scheduled = 1, pending = 1, active = 1, completed = 1, dead = 1, cancelled = 1},
}

-- The scope, mode, ttl and key of a text, or nil.
local function read_unique(text)
  local scope, mode, ttl, key = string.match(text or '', '^(%a+) ([%a_]+) (%d+) (.+)$')
  if SCOPES[scope] then
    return scope, mode, tonumber(ttl), key
  end
end

-- What a key of this kind holds; nil for one that is missing or foreign.
local function id_in(kind, key)
  local id = redis.pcall('GET', q[kind .. key])
  return type(id) == 'string' and id or nil
end

-- The row of the job that holds a key, or nil.
local function holder_of(key)
  local id = id_in('unique:', key)
  local row = id and read_row(id)
  if not row or fault_of(row) then
    return nil
  end
  local scope, _, _, own = read_unique(row[UNIQUE])
  if own ~= key or not SCOPES[scope][row[STATE]] or row[AFTER]
    or (row[UNIQUE_UNTIL] and tonumber(row[UNIQUE_UNTIL]) <= now_ms) then
    return nil
  end
  return row
end

-- Gives a key to a job, if it is free; what is foreign in its place stays.
local function seize(key, id)
  if not holder_of(key) and type(redis.pcall('GET', q['unique:' .. key])) ~= 'table' then
    redis.call('SET', q['unique:' .. key], id)
  end
end

-- Puts a job behind another that is live: the row of `owner` names in `next` who waits for its end.
local function park(row, owner)
  local waiting = ''
  for id in string.gmatch(owner[NEXT] or '', '%S+') do
    local other = read_row(id)
    if other and other[AFTER] == owner.id then
      waiting = waiting .. id .. ' '
    end
  end
  row[STATE], row[AFTER], owner[NEXT] = 'scheduled', owner.id, waiting .. row.id
  redis.call('ZADD', q.parked, now_text, row.id)
  redis.call('HSET', row_key(owner.id), 'next', owner[NEXT])
  attach(owner, 'next')
end

-- Lets a parked job wait for a worker, or for its time; it takes its key over if that is free.
local function unpark(row)
  local _, _, _, key = read_unique(row[UNIQUE])
  local row_at = row_key(row.id)
  if key then
    if id_in('unique-next:', key) == row.id then
      redis.call('DEL', q['unique-next:' .. key])
    end
    seize(key, row.id)
  end
  local due = redis.call('HGET', row_at, 'due')
  redis.call('ZREM', q.parked, row.id)
  redis.call('HDEL', row_at, 'after', 'due')
  if due and whole(due, 0) and tonumber(due) > now_ms then
    local earlier = rings_earlier(tonumber(due))
    redis.call('ZADD', q.schedule, due, row.id)
    if earlier then
      ring()
    end
  else
    place(row.id, number_of(row, PRIORITY))
    redis.call('HSET', row_at, 'state', 'pending')
    ring()
  end
end

-- Takes its key from a job that has left its scope; what is parked behind the job goes on, and takes the key over.
-- `keeps` when the row stays and its scope is `exists`.
local function let_go(row, keeps)
  if row[AFTER] then
    redis.call('ZREM', q.parked, row.id)
    redis.call('HDEL', row_key(row.id), 'after', 'due')
  end
  local _, _, _, key = read_unique(row[UNIQUE])
  local next_id = key and id_in('unique-next:', key)
  if next_id and next_id == row.id then
    redis.call('DEL', q['unique-next:' .. key])
    next_id = nil
  end
  local waiting, is_wanted = {}, false
  for id in string.gmatch((next_id or '') .. ' ' .. (row[NEXT] or ''), '%S+') do
    local other = read_row(id)
    if other and other[AFTER] == row.id and not fault_of(other) then
      waiting[#waiting + 1] = other
      local _, _, _, its_key = read_unique(other[UNIQUE])
      is_wanted = is_wanted or its_key == key
    end
  end
  if key and (is_wanted or not keeps) and id_in('unique:', key) == row.id then
    redis.call('DEL', q['unique:' .. key])
  end
  if row[NEXT] then
    redis.call('HDEL', row_key(row.id), 'next')
    row[NEXT] = false
  end
  for _, other in ipairs(waiting) do
    unpark(other)
  end
end

-- A job that waits again takes its key back, if that is free and its time has not come.
local function take_back(row)
  local _, _, _, key = read_unique(row[UNIQUE])
  if key and not (row[UNIQUE_UNTIL] and tonumber(row[UNIQUE_UNTIL]) <= now_ms) then
    seize(key, row.id)
  end
end
