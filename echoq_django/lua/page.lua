-- page: read one page of the jobs of a state, in the order of their set.
-- moves    none
-- KEYS     pending schedule active completed dead cancelled
-- ARGV     state offset limit newest_first
-- answers  {total, id, score, number of texts, field, value, ..., id, ...}; an id without a row has no fields
-- include  queue checks

local sets = {
  pending = KEYS[1], scheduled = KEYS[2], active = KEYS[3], completed = KEYS[4], dead = KEYS[5], cancelled = KEYS[6],
}
local set, offset, limit = sets[ARGV[1] or ''], whole(ARGV[2], 0), whole(ARGV[3], 1, 1000)
if not set then
  return refuse('state', 'must be pending, scheduled, active, completed, dead or cancelled')
end
if not offset then
  return refuse('offset', 'must be a whole number, 0 or more')
end
if not limit then
  return refuse('limit', 'must be a whole number from 1 to 1000')
end
local members
if ARGV[4] == '1' then
  members = redis.call('ZREVRANGE', set, offset, offset + limit - 1, 'WITHSCORES')
else
  members = redis.call('ZRANGE', set, offset, offset + limit - 1, 'WITHSCORES')
end
local answer, n = {digits(redis.call('ZCARD', set))}, 1
for i = 1, #members, 2 do
  local row = redis.pcall('HGETALL', row_key(members[i]))
  if row.err then
    row = {}
  end
  answer[n + 1], answer[n + 2], answer[n + 3] = members[i], members[i + 1], digits(#row)
  n = n + 3
  for j = 1, #row do
    answer[n + j] = row[j]
  end
  n = n + #row
end
return answer
