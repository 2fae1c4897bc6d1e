-- finish: how a job ends, how long its row is kept, and how it goes.
-- include  queue checks now_ms rows
-- defines  ENDED touch_sets read_retention finish forget bury_broken drop trim trim_ended trim_expired count count_up

local ENDED = {'completed', 'dead', 'cancelled'}
local POSITION = {completed = 1, dead = 2, cancelled = 3}
-- Lengths of time in ms and numbers of rows, in the order of ENDED, for callers that send none.
local DEFAULT_RETENTION = '86400000,2592000000,86400000,10000,100000,10000'
local keep_ms, keep_count

-- Reads the type of every set that a job may enter or leave, so that a foreign key stops a script before it writes.
local function touch_sets()
  redis.call('ZCARD', q.pending)
  redis.call('ZCARD', q.active)
  redis.call('ZCARD', q.schedule)
  redis.call('ZCARD', q.completed)
  redis.call('ZCARD', q.dead)
  redis.call('ZCARD', q.cancelled)
  redis.call('ZCARD', q.expiry)
end

-- Takes the retention that a caller sent: `completed,dead,cancelled` in ms, then the three in rows. An error or nil.
local function read_retention(text)
  if not text or text == '' then
    text = DEFAULT_RETENTION
  end
  local a, b, c, d, e, f = string.match(text, '^(%d+),(%d+),(%d+),(%d+),(%d+),(%d+)$')
  if not a then
    return refuse('retention', 'must be six whole numbers with commas: three in ms, three in rows')
  end
  keep_ms = {completed = tonumber(a), dead = tonumber(b), cancelled = tonumber(c)}
  keep_count = {completed = tonumber(d), dead = tonumber(e), cancelled = tonumber(f)}
  return nil
end

-- How long a row is kept after it ended as `state`, in ms; and whether that is its own rule. A row's field `retain` is
-- one number for all outcomes, or `completed,dead,cancelled` with nothing where the default holds.
local function retain_ms(row, state)
  local own = row[RETAIN]
  if own then
    local parts = {string.match(own, '^(%d*),(%d*),(%d*)$')}
    local ms = string.match(own, '^%d+$') or parts[POSITION[state]]
    if ms and ms ~= '' then
      return tonumber(ms), true
    end
  end
  return keep_ms[state], false
end

local totals = {}

-- Counts something that happened; `count_up` writes the sums at the end of the script.
local function count(what, n)
  totals[what] = (totals[what] or 0) + (n or 1)
end

-- A foreign key in their place costs the sums, never a job.
local function count_up()
  for what, n in pairs(totals) do
    redis.pcall('HINCRBY', q['metrics:totals'], what, n)
  end
end

-- Removes rows with everything attached to them: a list of rows that were read.
local function forget(gone)
  local keys = {}
  for _, row in ipairs(gone) do
    keys[#keys + 1] = row_key(row.id)
    if row[ATTACHED] then
      for part in string.gmatch(row[ATTACHED], '[%w-]+') do
        keys[#keys + 1] = row_key(row.id) .. ':' .. part
      end
    end
    if #keys > 900 then
      redis.call('UNLINK', unpack(keys))
      keys = {}
    end
  end
  if #keys > 0 then
    redis.call('UNLINK', unpack(keys))
  end
end

-- Ends a job that has left the sets it was in. `...` are fields to write with the state.
local function finish(row, state, ...)
  local ms, own = retain_ms(row, state)
  count(state)
  if ms == 0 or keep_count[state] == 0 then
    forget({row})
    return
  end
  redis.call('ZADD', q[state], digits(now_ms), row.id)
  if own then
    redis.call('ZADD', q.expiry, digits(now_ms + ms), row.id)
  end
  redis.call('HSET', row_key(row.id), 'state', state, ...)
end

-- Buries a job whose row cannot be used, from wherever it is. What was there is kept as `job:<id>:broken` when it is
-- no hash.
local function bury_broken(row, reason)
  local key = row_key(row.id)
  redis.call('ZREM', q.pending, row.id)
  redis.call('ZREM', q.active, row.id)
  redis.call('ZREM', q.schedule, row.id)
  redis.call('ZREM', q.completed, row.id)
  redis.call('ZREM', q.cancelled, row.id)
  redis.call('ZREM', q.expiry, row.id)
  if row.wrong_type then
    redis.call('RENAME', key, key .. ':broken')
    row[ATTACHED] = 'broken'
    redis.call('HSET', key, 'attempts', '0', 'attached', 'broken')
  end
  count('buried')
  finish(row, 'dead', 'reason', 'broken', 'last_error', 'broken row: ' .. reason)
end

-- Removes jobs by id from the set of their state, with all that belongs to them. A member whose row says that it is
-- elsewhere, and it is, only leaves the set.
local function drop(set, ids, state)
  if #ids == 0 then
    return
  end
  local gone = {}
  for _, id in ipairs(ids) do
    local row = read_row(id) or {id = id}
    if not is_elsewhere(row, state or (POSITION[row[STATE]] and row[STATE])) then
      gone[#gone + 1] = row
    end
  end
  redis.call('ZREM', set, unpack(ids))
  redis.call('ZREM', q.expiry, unpack(ids))
  forget(gone)
end

-- The ids among `ids` that have no rule of their own, which is the business of `expiry`.
local function without_own_rule(ids)
  local own = redis.call('ZMSCORE', q.expiry, unpack(ids))
  local rest = {}
  for i, id in ipairs(ids) do
    if not own[i] then
      rest[#rest + 1] = id
    end
  end
  return rest
end

-- The oldest rows of a state that are too old by the queue's rule. Rows with a longer rule of their own may lie in
-- front of them: where a whole page is such rows, `meta` remembers how far the search came.
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
    ids = without_own_rule(page)
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
  for _, state in ipairs(ENDED) do
    if totals[state] and left > 0 then
      left = left - trim(state, math.min(left, totals[state] + 16))
    end
  end
end

-- Removes at most `limit` rows whose own rule has run out; answers how many.
local function trim_expired(limit)
  local ids = redis.call('ZRANGE', q.expiry, '-inf', digits(now_ms), 'BYSCORE', 'LIMIT', 0, limit)
  if #ids > 0 then
    for _, state in ipairs(ENDED) do
      redis.call('ZREM', q[state], unpack(ids))
    end
    drop(q.expiry, ids)
  end
  return #ids
end
