-- settle: how a holder gives jobs back, each under its own token.
-- include  queue checks now_ms rows bell place totals unique finish
-- defines  judge check_settlement apply

-- Reads what a settlement is about and whether its holder may give it. Answers the row, or nil and a word of NOT_HELD,
-- or nil and 'broken' or 'again' (settled before with the same token and the same outcome).
local function judge(verb, id, token, lease)
  local row = read_row(id)
  if not row then
    return nil, 'gone'
  end
  if row.wrong_type or not row[ATTEMPTS] then
    return row, 'broken'
  end
  if row[ATTEMPTS] ~= token then
    return nil, 'stale'
  end
  if verb ~= 'complete' and fault_of(row) then
    return row, 'broken'
  end
  if lease and row[STATE] == 'active' then
    return row
  end
  if verb == 'complete' then
    if row[STATE] == 'completed' then
      return nil, 'again'
    end
    if row[STATE] == 'pending' or row[STATE] == 'scheduled' or (row[STATE] == 'dead' and row[REASON] == 'stalled') then
      -- The job left this holder's hands by stalling and nobody has claimed it since; unless no run of it counts any
      -- more: it was handed back, or is to run anew.
      if token ~= '0' and token ~= redis.call('HGET', row_key(id), 'uncounted') then
        row.late = true
        return row
      end
    end
  end
  return nil, 'not_active'
end

-- Adds to the log of a job how an attempt ended, with the first line of its error; the latest 50 entries are kept.
local function log_attempt(row, outcome, text)
  local key = row_key(row.id)
  local facts = redis.call('HMGET', key, 'started_at', 'owner')
  local function json(value)
    return '"' .. string.gsub(value, '[%c"\\]', function(char)
      return string.format('\\u%04x', string.byte(char))
    end) .. '"'
  end
  local entry = '{"attempt":' .. row[ATTEMPTS] .. ',"began":' .. (whole(facts[1], 0) and facts[1] or 'null')
    .. ',"ended":' .. now_text .. ',"outcome":"' .. outcome .. '","worker":' .. json(facts[2] or '')
  if text then
    local line = string.match(text, '^[^\n]*')
    if #line > 500 then
      line = string.gsub(string.sub(line, 1, 500), '[\192-\255][\128-\191]*$', '') .. '...'
    end
    entry = entry .. ',"error":' .. json(line)
  end
  local length = redis.pcall('RPUSH', key .. ':log', entry .. '}')
  if type(length) == 'number' then
    if length > 50 then
      redis.call('LTRIM', key .. ':log', -50, -1)
    end
    attach(row, 'log')
  end
end

local function forget_unknown(row)
  if row[UNKNOWN_SINCE] then
    redis.call('HDEL', row_key(row.id), 'unknown_since')
  end
end

local function end_as(row, state, ...)
  forget_unknown(row)
  finish(row, state, ...)
end

-- Back to those who wait for a worker. `field` is the count that the way back raises.
local function back_to_pending(row, field, name)
  place(row.id, number_of(row, PRIORITY))
  redis.call('HSET', row_key(row.id), 'state', 'pending', name, digits(number_of(row, field) + 1))
  ring()
  if row[UNIQUE] then
    take_back(row)
  end
end

local function back_to_schedule(row, delay_ms, ...)
  local score = from_ms + delay_ms
  local earlier = rings_earlier(score)
  redis.call('ZADD', q.schedule, digits(score), row.id)
  redis.call('HSET', row_key(row.id), 'state', 'scheduled', ...)
  if earlier then
    ring()
  end
  if row[UNIQUE] then
    take_back(row)
  end
end

local function raised(row, field)
  return digits(number_of(row, field) + 1)
end

-- The moves, one for each verb of a holder. The job has already left `active`; `number` and `text` are the verb's. One
-- function, since a script makes its functions anew in each call.
local function apply(verb, row, number, text)
  number = tonumber(number)
  if verb == 'complete' then
    if row.late then
      redis.call('ZREM', q.pending, row.id)
      redis.call('ZREM', q.schedule, row.id)
      redis.call('ZREM', q.dead, row.id)
      redis.call('ZREM', q.expiry, row.id)
      redis.call('HDEL', row_key(row.id), 'reason', 'last_error')
    end
    if row[ATTACHED] and string.find(row[ATTACHED], 'log', 1, true) then
      log_attempt(row, 'completed')
    end
    if text ~= '' then
      end_as(row, 'completed', 'result', text)
    else
      end_as(row, 'completed')
    end

  elseif verb == 'bury' then
    log_attempt(row, 'dead', text)
    end_as(row, 'dead', 'failures', raised(row, FAILURES), 'reason', 'failed', 'last_error', text)

  elseif verb == 'cancel' then
    if text == 'expired' then -- In hand, and not begun in time.
      expire(row)
    else
      log_attempt(row, 'cancelled')
      end_as(row, 'cancelled', 'reason', text)
    end

  -- EchoMQ: retry. An attempt that raised: later again, or dead when the budget is spent. `overrun` is one that its
  -- worker had to end; with -1 for the delay it is not tried again.
  elseif verb == 'retry' or verb == 'overrun' then
    if row[CANCEL] then
      log_attempt(row, 'cancelled', text)
      end_as(row, 'cancelled', 'failures', raised(row, FAILURES), 'last_error', text, 'reason', 'cancelled')
    elseif budget_spent(row) or number < 0 then
      log_attempt(row, 'dead', text)
      end_as(row, 'dead', 'failures', raised(row, FAILURES), 'last_error', text,
        'reason', verb == 'retry' and 'failed' or 'overrun')
    else
      count('retried')
      log_attempt(row, 'retried', text)
      forget_unknown(row)
      back_to_schedule(row, number, 'failures', raised(row, FAILURES), 'last_error', text)
    end

  elseif verb == 'stall' then -- Cut short by a lost worker; `number` is how often that may happen.
    count('stalled')
    log_attempt(row, 'stalled')
    local stalled = number_of(row, STALLED) + 1
    if row[CANCEL] then
      end_as(row, 'cancelled', 'stalled', digits(stalled), 'reason', 'cancelled')
    elseif stalled > number or budget_spent(row) then
      end_as(row, 'dead', 'stalled', digits(stalled), 'reason', 'stalled',
        'last_error', 'the worker was lost while the job ran')
    else
      back_to_pending(row, STALLED, 'stalled')
    end

  elseif row[CANCEL] then
    if verb == 'delay' or verb == 'interrupt' then
      log_attempt(row, 'cancelled')
    end
    end_as(row, 'cancelled', 'reason', 'cancelled')

  elseif verb == 'interrupt' then -- Cut short by a stop: nothing counted, unless that was its last attempt.
    log_attempt(row, 'interrupted')
    if budget_spent(row) then
      end_as(row, 'dead', 'reason', 'stopped', 'last_error', 'the worker was stopped while the job ran')
    else
      back_to_pending(row, UNCOUNTED, 'uncounted')
    end

  elseif verb == 'delay' then -- EchoMQ: delay. Back to the schedule, nothing counted.
    log_attempt(row, 'snoozed')
    forget_unknown(row)
    back_to_schedule(row, number, 'uncounted', raised(row, UNCOUNTED))

  elseif verb == 'unknown' then -- A task that this worker does not know; `text` ms after it was first seen: dead.
    local since = number_of(row, UNKNOWN_SINCE, now_ms)
    if now_ms - since >= tonumber(text) then
      finish(row, 'dead', 'reason', 'unknown task', 'last_error', 'no worker knows the task of this job')
    else
      back_to_schedule(row, number, 'uncounted', raised(row, UNCOUNTED), 'unknown_since', digits(since))
    end

  else -- release: handed back before it had begun, nothing counted.
    back_to_pending(row, UNCOUNTED, 'uncounted')
  end
end

-- The verbs, and whether they need a number: 2 for one that may be -1.
local VERBS = {
  complete = 0, bury = 0, cancel = 0, release = 0, interrupt = 0, retry = 1, delay = 1, unknown = 1, stall = 1,
  overrun = 2,
}

-- Why a settlement is malformed, as an error; nil when it is sound.
local function check_settlement(where, verb, id, number, text)
  if not id then
    return redis.error_reply('EMQKIND ' .. where .. 'ticket must be a job id, a colon and the token')
  end
  if not VERBS[verb] then
    return refuse(where .. 'verb',
      'must be complete, retry, overrun, delay, unknown, release, interrupt, stall, bury or cancel')
  end
  if VERBS[verb] > 0 and not whole(number, 1 - VERBS[verb], LARGEST - from_ms) then
    return refuse(where .. 'number', 'must be a whole number, 0 or more')
  end
  if verb == 'unknown' and not whole(text, 0) then
    return refuse(where .. 'text', 'must be the grace in milliseconds')
  end
  return nil
end
