-- finish: how a job ends, how long its row is kept, and how it goes.
-- include  queue checks now_ms rows bell place totals unique tell
-- constants  DEFAULT_RETENTION='86400000,2592000000,86400000,10000,100000,10000'
-- defines  touch_sets read_retention finish forget expire bury_broken POSITION keep_ms keep_count

local POSITION = {completed = 1, dead = 2, cancelled = 3}
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
  redis.call('ZCARD', q.parked)
end

-- Takes the retention that a caller sent: `completed,dead,cancelled` in ms, then the three in rows; a default of ours
-- when it sent none. An error or nil.
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

-- Removes rows with everything attached to them: a list of rows that were read. `was_told` when it has been told what
-- became of them.
local function forget(gone, was_told)
  local keys = {}
  for _, row in ipairs(gone) do
    if row[ATTACHED] then
      local has_let_go = false
      for part in string.gmatch(row[ATTACHED], '[%w-]+') do
        if part == 'unique' or part == 'next' or part == 'origin' then
          if not has_let_go then
            local whole_row = read_row(row.id) or row
            if whole_row[ORIGIN] and LIVE[whole_row[STATE]] and not was_told then
              tell_end(whole_row, 'removed')
            end
            let_go(whole_row)
            has_let_go = true
          end
        else
          keys[#keys + 1] = row_key(row.id) .. ':' .. part
        end
      end
    end
    keys[#keys + 1] = row_key(row.id)
    if #keys > 900 then
      redis.call('UNLINK', unpack(keys))
      keys = {}
    end
  end
  if #keys > 0 then
    redis.call('UNLINK', unpack(keys))
  end
end

-- Ends a job that has left the sets it was in. `...` are fields to write with the state. A row's field `retain` is one
-- number for all outcomes, or `completed,dead,cancelled` with nothing where the default holds.
local function finish(row, state, ...)
  local ms, own = keep_ms[state], row[RETAIN]
  if own then
    local parts = {string.match(own, '^(%d*),(%d*),(%d*)$')}
    own = tonumber(string.match(own, '^%d+$') or parts[POSITION[state]])
    ms = own or ms
  end
  count(state)
  local is_kept = ms > 0 and keep_count[state] > 0
  if row[ORIGIN] then
    tell_end(row, state)
  end
  if row[UNIQUE] or row[AFTER] or row[NEXT] then
    let_go(row, is_kept and read_unique(row[UNIQUE]) == 'exists')
  end
  if not is_kept then
    if row[ATTACHED] then
      forget({row}, true)
    else
      redis.call('UNLINK', row_key(row.id))
    end
    return
  end
  redis.call('ZADD', q[state], now_text, row.id)
  if own then
    redis.call('ZADD', q.expiry, digits(now_ms + ms), row.id)
  end
  redis.call('HSET', row_key(row.id), 'state', state, ...)
end

-- Ends a job that has left the sets it was in and was not begun in time.
local function expire(row)
  count('expired')
  finish(row, 'cancelled', 'reason', 'expired')
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
