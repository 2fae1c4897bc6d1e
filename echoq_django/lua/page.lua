-- page: read one page of the jobs of a state, in the order of their set; parked ones come after those with a time.
-- moves    none
-- KEYS     pending schedule active completed dead cancelled parked
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
local parked = KEYS[7]
local command = ARGV[4] == '1' and 'ZREVRANGE' or 'ZRANGE'
local members = redis.call(command, set, offset, offset + limit - 1, 'WITHSCORES')
local total = redis.call('ZCARD', set)
if ARGV[1] == 'scheduled' then
  local first, room = math.max(0, offset - total), limit - #members / 2
  local rest = room > 0 and redis.call(command, parked, first, first + room - 1) or {}
  for i = 1, #rest do
    members[#members + 1] = rest[i]
    members[#members + 1] = ''
  end
  total = total + redis.call('ZCARD', parked)
end
local answer, n = {digits(total)}, 1
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
