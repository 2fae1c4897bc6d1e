-- settle: how a holder gives jobs back, each under its own token.
-- include  queue checks now_ms rows bell admit finish
-- defines  NOT_HELD judge check_settlement apply settle_one

-- What a refusal says: the first word is the error's, the rest its reason.
local NOT_HELD = {
  gone = 'EMQSTALE job gone',
  stale = 'EMQSTALE token mismatch',
  not_active = 'EMQSTATE not active',
}

-- Late completion: the job left this holder's hands by stalling and nobody has claimed it since.
local function is_late_completion(row)
  return row[STATE] == 'pending' or row[STATE] == 'scheduled' or (row[STATE] == 'dead' and row[REASON] == 'stalled')
end

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
    if is_late_completion(row) then
      row.late = true
      return row
    end
  end
  return nil, 'not_active'
end

local function end_as(row, state, ...)
  if row[UNKNOWN_SINCE] then
    redis.call('HDEL', row_key(row.id), 'unknown_since')
  end
  finish(row, state, ...)
end

-- Back to those who wait for a worker. `field` is the count that the way back raises.
local function back_to_pending(row, field, name)
  place(row.id, number_of(row, PRIORITY))
  redis.call('HSET', row_key(row.id), 'state', 'pending', name, digits(number_of(row, field) + 1))
  ring()
end

local function back_to_schedule(row, delay_ms, ...)
  local score = from_ms + delay_ms
  local earlier = rings_earlier(score)
  redis.call('ZADD', q.schedule, digits(score), row.id)
  redis.call('HSET', row_key(row.id), 'state', 'scheduled', ...)
  if earlier then
    ring()
  end
end

local function raised(row, field)
  return digits(number_of(row, field) + 1)
end

-- The moves, one for each verb of a holder. The job has already left `active`; `number` and `text` are the verb's.
local APPLY = {}

function APPLY.complete(row, _, text)
  if row.late then
    redis.call('ZREM', q.pending, row.id)
    redis.call('ZREM', q.schedule, row.id)
    redis.call('ZREM', q.dead, row.id)
    redis.call('ZREM', q.expiry, row.id)
    redis.call('HDEL', row_key(row.id), 'reason')
  end
  if text ~= '' then
    end_as(row, 'completed', 'result', text)
  else
    end_as(row, 'completed')
  end
end

-- EchoMQ: retry. An attempt that raised: later again, or dead when the budget is spent.
function APPLY.retry(row, delay_ms, text)
  if row[CANCEL] then
    end_as(row, 'cancelled', 'failures', raised(row, FAILURES), 'last_error', text, 'reason', 'cancelled')
  elseif budget_spent(row) then
    end_as(row, 'dead', 'failures', raised(row, FAILURES), 'last_error', text, 'reason', 'failed')
  else
    if row[UNKNOWN_SINCE] then
      redis.call('HDEL', row_key(row.id), 'unknown_since')
    end
    count('retried')
    back_to_schedule(row, delay_ms, 'failures', raised(row, FAILURES), 'last_error', text)
  end
end

-- EchoMQ: delay. Back to the schedule, nothing counted.
function APPLY.delay(row, delay_ms)
  if row[CANCEL] then
    end_as(row, 'cancelled', 'reason', 'cancelled')
  else
    if row[UNKNOWN_SINCE] then
      redis.call('HDEL', row_key(row.id), 'unknown_since')
    end
    back_to_schedule(row, delay_ms, 'uncounted', raised(row, UNCOUNTED))
  end
end

-- A task that this worker does not know: later again, uncounted, until `text` ms after it was first seen.
function APPLY.unknown(row, delay_ms, text)
  local since = number_of(row, UNKNOWN_SINCE, now_ms)
  if row[CANCEL] then
    end_as(row, 'cancelled', 'reason', 'cancelled')
  elseif now_ms - since >= tonumber(text) then
    finish(row, 'dead', 'reason', 'unknown task', 'last_error', 'no worker knows the task of this job')
  else
    back_to_schedule(row, delay_ms, 'uncounted', raised(row, UNCOUNTED), 'unknown_since', digits(since))
  end
end

-- Handed back before it had begun: nothing counted.
function APPLY.release(row)
  if row[CANCEL] then
    end_as(row, 'cancelled', 'reason', 'cancelled')
  else
    back_to_pending(row, UNCOUNTED, 'uncounted')
  end
end

-- Cut short by a lost worker: `number` is how often that may happen.
function APPLY.stall(row, max_stalled)
  count('stalled')
  local stalled = number_of(row, STALLED) + 1
  if row[CANCEL] then
    end_as(row, 'cancelled', 'stalled', digits(stalled), 'reason', 'cancelled')
  elseif stalled > max_stalled or budget_spent(row) then
    end_as(row, 'dead', 'stalled', digits(stalled), 'reason', 'stalled',
      'last_error', 'the worker was lost while the job ran')
  else
    back_to_pending(row, STALLED, 'stalled')
  end
end

function APPLY.bury(row, _, text)
  end_as(row, 'dead', 'failures', raised(row, FAILURES), 'reason', 'failed', 'last_error', text)
end

function APPLY.cancel(row, _, text)
  end_as(row, 'cancelled', 'reason', text)
end

local NEEDS_NUMBER = {retry = true, delay = true, unknown = true, stall = true}

-- Why a settlement is malformed, as an error; nil when it is sound.
local function check_settlement(where, verb, id, number, text)
  if not id then
    return redis.error_reply('EMQKIND ' .. where .. 'ticket must be a job id, a colon and the token')
  end
  if not APPLY[verb] then
    return refuse(where .. 'verb', 'must be complete, retry, delay, unknown, release, stall, bury or cancel')
  end
  if NEEDS_NUMBER[verb] and not whole(number, 0, LARGEST - from_ms) then
    return refuse(where .. 'number', 'must be a whole number, 0 or more')
  end
  if verb == 'unknown' and not whole(text, 0) then
    return refuse(where .. 'text', 'must be the grace in milliseconds')
  end
  return nil
end

-- Writes one judged settlement.
local function apply(verb, row, number, text)
  APPLY[verb](row, tonumber(number), text)
end

-- One settlement as a script of its own: an error, or nil when it was applied or had been before.
local function settle_one(verb, ticket, number, text)
  local id, token = split_ticket(ticket)
  local wrong = check_settlement('', verb, id, number, text)
  if wrong then
    return wrong
  end
  listen()
  touch_sets()
  rings_earlier(math.huge)
  local row, refusal = judge(verb, id, token, redis.call('ZSCORE', q.active, id))
  if refusal == 'again' then
    return nil
  end
  if refusal == 'broken' then
    bury_broken(row, fault_of(row))
    count_up()
    return redis.error_reply('EMQSTATE broken row, buried')
  end
  if refusal then
    return redis.error_reply(NOT_HELD[refusal])
  end
  redis.call('ZREM', q.active, id)
  apply(verb, row, number, text)
  trim_ended()
  count_up()
  return nil
end
