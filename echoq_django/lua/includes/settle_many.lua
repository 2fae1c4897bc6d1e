-- settle_many: several settlements in one script.
-- include  queue checks now_ms rows bell place totals finish settle
-- defines  judge_all apply_all

local accepted, torn = {}, {}

-- Reads what settlements are about, each {verb, ticket, number, text, id, token}. `settled` holds, by id, the ticket of
-- a completion that comes before them, or true. Answers the refused, as a list of ticket and word.
local function judge_all(settlements, settled)
  local refused, ids = {}, {}
  for i, settlement in ipairs(settlements) do
    ids[i] = settlement[5]
  end
  local leases = redis.call('ZMSCORE', q.active, unpack(ids))
  for i, settlement in ipairs(settlements) do
    local verb, ticket, id = settlement[1], settlement[2], settlement[5]
    local row, word = nil, 'stale'
    if not settled[id] then
      row, word = judge(verb, id, settlement[6], leases[i])
    elseif settled[id] == ticket and verb == 'complete' then
      word = 'again'
    end
    if word == 'broken' then
      settled[id] = true
      torn[#torn + 1] = row
    elseif word == 'again' then
      settled[id] = ticket
    elseif word then
      refused[#refused + 1] = ticket
      refused[#refused + 1] = word
    else
      settled[id] = verb == 'complete' and ticket or true
      settlement.row = row
      accepted[#accepted + 1] = settlement
    end
  end
  return refused
end

-- Does what was accepted, and buries what was broken.
local function apply_all()
  for _, settlement in ipairs(accepted) do
    redis.call('ZREM', q.active, settlement[5])
  end
  for _, settlement in ipairs(accepted) do
    apply(settlement[1], settlement.row, settlement[3], settlement[4])
  end
  for _, row in ipairs(torn) do
    bury_broken(row, fault_of(row) or 'unknown')
  end
end
