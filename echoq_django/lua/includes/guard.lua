-- guard: new jobs that may fold into another, `unique`, or come too late, `expires`.
-- include  queue checks ids now_ms rows bell place totals admit unique
-- defines  check_guards admit_guarded

-- A producer sends `unique` and `expires` before the other fields of a job, in this order.
local MODES = {['return'] = 1, extend = 1, replace = 1, keep_last = 1}

-- What the fields from ARGV[first] to ARGV[last] say: the text of `unique` and the length of `expires`, each or nil.
local function read_guards(first, last)
  local unique, expires
  if first < last and ARGV[first] == 'unique' then
    unique, first = ARGV[first + 1], first + 2
  end
  if first < last and ARGV[first] == 'expires' then
    expires = ARGV[first + 1]
  end
  return unique, expires
end

-- Why guards are refused, as an error; nil when they are sound. Reads the keys that admission will write.
local function check_guards(first, last)
  local unique, expires = read_guards(first, last)
  if expires and not whole(expires, 1, LARGEST - from_ms) then
    return refuse('expires', 'must be a whole number of milliseconds, 1 or more')
  end
  if unique then
    local scope, mode, ttl, key = read_unique(unique)
    if not scope or not MODES[mode] or ttl > LARGEST - now_ms or #key > 1000 then
      return refuse('unique', 'must be scope, on_duplicate, ttl in ms or 0, and a key of at most 1,000 bytes')
    end
    redis.call('GET', q['unique:' .. key])
    redis.call('GET', q['unique-next:' .. key])
    redis.call('ZCARD', q.parked)
    redis.call('ZCARD', q.pending)
    redis.call('ZCARD', q.schedule)
  end
  return nil
end

-- What the server adds to a guarded row.
local function guards_of(unique, expires, due)
  local added = {}
  if expires then
    added = {'expires_at', digits(math.min(due + tonumber(expires), LARGEST))}
  end
  if unique then
    local _, _, ttl = read_unique(unique)
    if ttl > 0 then
      added[#added + 1], added[#added + 2] = 'unique_until', digits(now_ms + ttl)
    end
  end
  return added
end

local function write_guarded(row, payload, priority, first, last, added)
  local key = row_key(row.id)
  redis.call('HSET', key, 'state', row[STATE], 'attempts', row[ATTEMPTS], 'payload', payload,
    unpack(ARGV, first, last))
  if priority ~= 0 then
    redis.call('HSET', key, 'priority', digits(priority))
  end
  if row[ATTEMPTS] ~= '0' then
    -- It has its whole budget again, and no completion of an earlier run is taken for this call's.
    redis.call('HSET', key, 'uncounted', row[ATTEMPTS])
  end
  if #added > 0 then
    redis.call('HSET', key, unpack(added))
  end
  if row[ATTACHED] then
    redis.call('HSET', key, 'attached', row[ATTACHED])
  end
end

-- Puts another call in the place of the one that a waiting or parked job stands for.
local function rewrite(row, payload, mode, value, priority, first, last, added)
  redis.call('ZREM', q.pending, row.id)
  redis.call('ZREM', q.schedule, row.id)
  redis.call('UNLINK', row_key(row.id))
  count('replaced')
  if row[AFTER] then
    write_guarded(row, payload, priority, first, last, added)
    redis.call('HSET', row_key(row.id), 'after', row[AFTER])
    if mode ~= 'now' then
      redis.call('HSET', row_key(row.id), 'due', digits(price(mode, value)))
    end
    return
  end
  row[STATE] = mode == 'now' and 'pending' or 'scheduled'
  place_new(row.id, mode, value, priority)
  write_guarded(row, payload, priority, first, last, added)
end

-- Parks a call until the job that holds its key has ended.
local function park(row, owner, key, payload, mode, value, priority, first, last, added)
  row[STATE], row[AFTER] = 'scheduled', owner.id
  redis.call('ZADD', q.parked, now_text, row.id)
  write_guarded(row, payload, priority, first, last, added)
  redis.call('HSET', row_key(row.id), 'after', owner.id)
  if mode ~= 'now' then
    redis.call('HSET', row_key(row.id), 'due', digits(price(mode, value)))
  end
  redis.call('SET', q['unique-next:' .. key], row.id)
end

-- Adds a guarded job, or does what its `on_duplicate` says to the job that holds its key. Answers `enqueued`, `parked`,
-- or the state of the job that stands for this call; the score of a new one that is scheduled; and the job's id.
local function admit_guarded(id, payload, mode, value, priority, first, last)
  local unique, expires = read_guards(first, last)
  local due = mode == 'now' and now_ms or price(mode, value)
  local added = guards_of(unique, expires, due)
  local row = {id = id, [STATE] = mode == 'now' and 'pending' or 'scheduled', [ATTEMPTS] = '0'}
  local key
  if unique then
    local _, on_duplicate, ttl
    _, on_duplicate, ttl, key = read_unique(unique)
    row[ATTACHED] = 'unique'
    local owner = holder_of(key)
    if owner then
      local state = owner[STATE]
      local is_waiting = state == 'pending' or state == 'scheduled'
      if on_duplicate == 'extend' and ttl > 0 then
        redis.call('HSET', row_key(owner.id), 'unique_until', digits(now_ms + ttl))
      elseif on_duplicate == 'replace' and is_waiting then
        rewrite(owner, payload, mode, value, priority, first, last, added)
        return row[STATE], '', owner.id
      elseif on_duplicate == 'keep_last' then
        local next_id = id_in('unique-next:', key)
        local parked = next_id and read_row(next_id)
        if parked and parked[AFTER] and not fault_of(parked) then
          parked[AFTER] = owner.id
          rewrite(parked, payload, mode, value, priority, first, last, added)
          return 'scheduled', '', parked.id
        elseif state == 'active' then
          park(row, owner, key, payload, mode, value, priority, first, last, added)
          return 'parked', '', id
        elseif is_waiting then
          rewrite(owner, payload, mode, value, priority, first, last, added)
          return row[STATE], '', owner.id
        end
      end
      return state, '', owner.id
    end
  end
  local score = place_new(id, mode, value, priority)
  write_guarded(row, payload, priority, first, last, added)
  if key then
    redis.call('SET', q['unique:' .. key], id)
  end
  return 'enqueued', score, id
end
