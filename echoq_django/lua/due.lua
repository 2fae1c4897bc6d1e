-- due: read registrations whose next slot has come, oldest first; a name that is not registered leaves the set.
-- moves    none
-- KEYS     repeat
-- ARGV     offset limit most_bytes
-- answers  {now, us to the next slot that is to come or -1, name, slot, number of texts, field, value, ..., name, ...}
-- include  queue checks now_ms totals registration

-- Ends after the first registration with which its answer has `most_bytes`.
q['repeat'] = KEYS[1]
local offset, limit, most_bytes = whole(ARGV[1], 0), whole(ARGV[2], 1, 1000), whole(ARGV[3], 1)
if not offset then
  return refuse('offset', 'must be a whole number, 0 or more')
end
if not limit then
  return refuse('limit', 'must be a whole number from 1 to 1000')
end
if not most_bytes then
  return refuse('most_bytes', 'must be a whole number of 1 or more')
end
local due = redis.call('ZRANGE', q['repeat'], '-inf', now_text, 'BYSCORE', 'LIMIT', offset, limit, 'WITHSCORES')
local next_one = redis.call('ZRANGE', q['repeat'], '(' .. now_text, '(inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
local next_in = next_one[2] and digits(math.min(tonumber(next_one[2]) * 1000 - now_us, LARGEST)) or '-1'
local answer, n, bytes, dangling = {now_text, next_in}, 2, 0, {}
for i = 1, #due, 2 do
  local record = redis.pcall('HGETALL', q['repeat:' .. due[i]])
  if record.err or #record == 0 then
    dangling[#dangling + 1] = due[i]
  else
    answer[n + 1], answer[n + 2], answer[n + 3] = due[i], slot_of(due[i + 1]), digits(#record)
    n = n + 3
    for j = 1, #record do
      answer[n + j] = record[j]
      bytes = bytes + #record[j]
    end
    n = n + #record
    if bytes >= most_bytes then
      break
    end
  end
end

if #dangling > 0 then
  for i = 1, #dangling, 1000 do
    redis.call('ZREM', q['repeat'], unpack(dangling, i, math.min(i + 999, #dangling)))
  end
  count('ghosts', #dangling)
  count_up()
end
return answer
