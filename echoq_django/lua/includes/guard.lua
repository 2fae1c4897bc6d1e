-- guard: new jobs that may fold into another, `unique`, come too late, `expires`, or are told of, `origin`.
-- include  queue checks ids now_ms rows bell place totals admit unique tell
-- defines  read_guards admit_guarded

-- A producer sends `unique`, `expires` and `origin` before the other fields of a job, in this order.
local MODES = {['return'] = 1, extend = 1, replace = 1, keep_last = 1}

-- What the fields from texts[first] to texts[last] say of a job, as a table, or nil and why they are refused. Reads the
-- keys that admission will write. `after` is put into it for a job that is to wait for the end of another.
local function read_guards(texts, first, last)
  local guards = {texts = texts, first = first, last = last}
  if texts[first] == 'unique' then
    local scope, mode, ttl, key = read_unique(texts[first + 1])
    if not scope or not MODES[mode] or ttl > LARGEST - now_ms or #key > 1000 then
      return nil, refuse('unique', 'must be scope, on_duplicate, ttl in ms or 0, and a key of at most 1,000 bytes')
    end
    redis.call('GET', q['unique:' .. key])
    if mode == 'keep_last' then
      redis.call('GET', q['unique-next:' .. key])
      redis.call('ZCARD', q.parked)
    end
    guards.mode, guards.key, guards.ttl, first = mode, key, ttl > 0 and ttl, first + 2
  end
  if first < last and texts[first] == 'expires' then
    guards.expires = whole(texts[first + 1], 1, LARGEST - from_ms)
    if not guards.expires then
      return nil, refuse('expires', 'must be a whole number of milliseconds, 1 or more')
    end
    first = first + 2
  end
  guards.has_origin = first < last and texts[first] == 'origin'
  return guards
end

-- Writes the row of a guarded job; `row` says its state, attempts and what goes with it.
local function write_guarded(row, payload, mode, value, priority, guards)
  local fields = {unpack(guards.texts, guards.first, guards.last)}
  local n = #fields
  local function add(name, text)
    fields[n + 1], fields[n + 2] = name, text
    n = n + 2
  end
  local attached = row[ATTACHED]
  if guards.has_origin and not string.find(attached or '', 'origin', 1, true) then
    attached = attached and attached .. ',origin' or 'origin'
  end
  if attached then
    add('attached', attached)
  end
  if guards.ttl then
    add('unique_until', digits(now_ms + guards.ttl))
  end
  if guards.expires then
    local due = mode == 'now' and now_ms or price(mode, value)
    add('expires_at', digits(math.min(due + guards.expires, LARGEST)))
  end
  if priority ~= 0 then
    add('priority', digits(priority))
  end
  if row[AFTER] then
    add('after', row[AFTER])
    if mode ~= 'now' then
      add('due', digits(price(mode, value)))
    end
  end
  if row[NEXT] then
    add('next', row[NEXT])
  end
  if row[ATTEMPTS] ~= '0' then
    -- It has its whole budget again, and no completion of an earlier run is taken for this call's.
    add('uncounted', row[ATTEMPTS])
  end
  redis.call('HSET', row_key(row.id), 'state', row[STATE], 'attempts', row[ATTEMPTS], 'payload', payload,
    unpack(fields))
end

-- Puts another call in the place of the one that a waiting or parked job stands for; answers its state.
local function rewrite(row, payload, mode, value, priority, guards)
  redis.call('ZREM', q.pending, row.id)
  redis.call('ZREM', q.schedule, row.id)
  redis.call('UNLINK', row_key(row.id))
  count('replaced')
  if row[ORIGIN] then
    tell_end(row, 'replaced')
  end
  row[STATE] = (row[AFTER] or mode ~= 'now') and 'scheduled' or 'pending'
  if not row[AFTER] then
    place_new(row.id, mode, value, priority)
  end
  write_guarded(row, payload, mode, value, priority, guards)
  return row[STATE]
end

-- What a call does to the job that holds its key; answers as `admit_guarded`, and whether the job stands for the call
-- from now on.
local function meet(owner, row, payload, mode, value, priority, guards)
  local state, key = owner[STATE], guards.key
  local is_waiting = state == 'pending' or state == 'scheduled'
  if guards.mode == 'extend' and guards.ttl then
    redis.call('HSET', row_key(owner.id), 'unique_until', digits(now_ms + guards.ttl))
  elseif guards.mode == 'replace' and is_waiting then
    return rewrite(owner, payload, mode, value, priority, guards), '', owner.id, true
  elseif guards.mode == 'keep_last' then
    local next_id = id_in('unique-next:', key)
    local parked = next_id and read_row(next_id)
    if parked and parked[AFTER] and not fault_of(parked) then
      if LIVE[state] then
        parked[AFTER] = owner.id
      end
      return rewrite(parked, payload, mode, value, priority, guards), '', parked.id, true
    elseif state == 'active' then
      row[STATE], row[AFTER] = 'scheduled', owner.id
      redis.call('ZADD', q.parked, now_text, row.id)
      write_guarded(row, payload, mode, value, priority, guards)
      redis.call('SET', q['unique-next:' .. key], row.id)
      return 'parked', '', row.id
    elseif is_waiting then
      return rewrite(owner, payload, mode, value, priority, guards), '', owner.id, true
    end
  end
  return state, '', owner.id
end

-- Adds a guarded job, or does what its `on_duplicate` says to the job that holds its key. Answers `enqueued`, `parked`,
-- or the state of the job that stands for this call; the score of a new one that is scheduled; and the job's id.
local function admit_guarded(id, payload, mode, value, priority, guards)
  local key = guards.key
  local owner = key and holder_of(key)
  local row = {id = id, [STATE] = mode == 'now' and 'pending' or 'scheduled', [ATTEMPTS] = '0'}
  row[ATTACHED] = key and 'unique'
  -- What becomes of the one before it was decided already.
  local is_before = owner and guards.after and owner.id == guards.after.id and guards.mode ~= 'keep_last'
  if owner and not is_before then
    return meet(owner, row, payload, mode, value, priority, guards)
  end
  if guards.after then
    park(row, guards.after)
    write_guarded(row, payload, mode, value, priority, guards)
    return 'parked', '', id
  end
  local score = place_new(id, mode, value, priority)
  write_guarded(row, payload, mode, value, priority, guards)
  if key then
    redis.call('SET', q['unique:' .. key], id)
  end
  return 'enqueued', score, id
end
