-- extend_held: new deadlines for the jobs that a worker still holds.
-- include  queue checks now_ms
-- defines  extend_held

-- Extends the tickets from ARGV[first] on; appends to `answer` a word and the ticket for each that was lost (a torn or
-- stale one too) and each whose cancel was asked for, which is extended all the same.
local function extend_held(answer, lease_ms, first)
  local members, deadline, n = {}, digits(now_ms + lease_ms), #answer
  for i = first, #ARGV do
    local ticket, word = ARGV[i]
    local id, token = split_ticket(ticket)
    local row = id and redis.pcall('HMGET', row_key(id), 'state', 'attempts', 'cancel')
    if not row or row.err or row[2] ~= token or row[1] ~= 'active' or not redis.call('ZSCORE', q.active, id) then
      word = 'lost'
    else
      members[#members + 1] = deadline
      members[#members + 1] = id
      word = row[3] and 'cancelled'
    end
    if word then
      answer[n + 1], answer[n + 2] = word, ticket
      n = n + 2
    end
  end
  even_when_full()
  for i = 1, #members, 1000 do
    redis.call('ZADD', q.active, 'XX', unpack(members, i, math.min(i + 999, #members)))
  end
end
