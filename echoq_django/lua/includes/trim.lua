-- trim: ended rows go by age, by number and by their own rule.
-- include  queue checks now_ms rows totals finish
-- defines  drop trim trim_ended trim_expired

-- Removes jobs by id from the set of their state, with all that belongs to them. A member whose row says that it is
-- elsewhere, and it is, only leaves the set.
local function drop(set, ids, state)
  if #ids == 0 then
    return
  end
  local gone = {}
  for _, id in ipairs(ids) do
    local row = read_to_drop(id) or {id = id}
    if not is_elsewhere(row, state or (POSITION[row[STATE]] and row[STATE])) then
      gone[#gone + 1] = row
    end
  end
  redis.call('ZREM', set, unpack(ids))
  redis.call('ZREM', q.expiry, unpack(ids))
  forget(gone)
end

-- The oldest rows of a state that are too old by the queue's rule. Rows with a longer rule of their own, which is the
-- business of `expiry`, may lie in front of them: where a whole page is such rows, `meta` remembers how far the search
-- came.
local function too_old(state, limit)
  local latest = digits(now_ms - keep_ms[state])
  if redis.call('EXISTS', q.expiry) == 0 then
    return redis.call('ZRANGE', q[state], '-inf', latest, 'BYSCORE', 'LIMIT', 0, limit)
  end
  local mark = 'trimmed_' .. state
  local from = redis.call('HGET', q.meta, mark)
  local page = redis.call('ZRANGE', q[state], from or '-inf', latest, 'BYSCORE', 'LIMIT', 0, limit)
  local ids = {}
  if #page > 0 then
    local own = redis.call('ZMSCORE', q.expiry, unpack(page))
    for i, id in ipairs(page) do
      if not own[i] then
        ids[#ids + 1] = id
      end
    end
  end
  if #page == limit and #ids == 0 then
    local reached = redis.call('ZSCORE', q[state], page[#page])
    redis.call('HSET', q.meta, mark, reached == from and '(' .. reached or reached)
  elseif from and #page < limit then
    redis.call('HDEL', q.meta, mark)
  end
  return ids
end

-- Removes at most `limit` ended rows of one state that are too old or, whatever their own rule, too many; answers how
-- many.
local function trim(state, limit)
  local ids = too_old(state, limit)
  local over = redis.call('ZCARD', q[state]) - keep_count[state]
  if over > #ids then
    ids = redis.call('ZRANGE', q[state], 0, math.min(over, limit) - 1)
  end
  drop(q[state], ids, state)
  return #ids
end

-- Trims the states in which jobs have just ended, each a little faster than it grows; at most 200 rows in all.
local function trim_ended()
  local left = 200
  for state in pairs(POSITION) do
    if totals[state] and left > 0 then
      local oldest = redis.call('ZRANGE', q[state], 0, 0, 'WITHSCORES')
      local is_old = oldest[2] and tonumber(oldest[2]) <= now_ms - keep_ms[state]
      if is_old or redis.call('ZCARD', q[state]) > keep_count[state] then
        left = left - trim(state, math.min(left, totals[state] + 16))
      end
    end
  end
end

-- Removes at most `limit` rows whose own rule has run out; answers how many.
local function trim_expired(limit)
  local ids = redis.call('ZRANGE', q.expiry, '-inf', now_text, 'BYSCORE', 'LIMIT', 0, limit)
  if #ids > 0 then
    for state in pairs(POSITION) do
      redis.call('ZREM', q[state], unpack(ids))
    end
    drop(q.expiry, ids)
  end
  return #ids
end
