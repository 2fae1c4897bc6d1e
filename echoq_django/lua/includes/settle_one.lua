-- settle_one: one settlement as a script of its own.
-- include  queue checks now_ms rows bell place totals finish trim settle
-- defines  NOT_HELD settle_one

-- What a refusal says: the first word is the error's, the rest its reason.
local NOT_HELD = {
  gone = 'EMQSTALE job gone',
  stale = 'EMQSTALE token mismatch',
  not_active = 'EMQSTATE not active',
}

-- One settlement as a script of its own: an error, or nil when it was applied or had been before.
local function settle_one(verb, ticket, number, text)
  local id, token = split_ticket(ticket)
  local wrong = check_settlement('', verb, id, number, text)
  if wrong then
    return wrong
  end
  listen()
  touch_sets()
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
