-- checkpoint: extend the lease of one job in hand, store its progress, and learn whether to go on.
-- moves    none
-- KEYS     active
-- ARGV     ticket lease_ms progress note
-- answers  {"held"} | {"cancelled"}
-- include  queue checks now_ms rows

q.active = KEYS[1]
local id, token = split_ticket(ARGV[1])
local lease_ms, progress, note = whole(ARGV[2], 1), ARGV[3], ARGV[4]
if not id then
  return redis.error_reply('EMQKIND ticket must be a job id, a colon and the token')
end
if not lease_ms then
  return refuse('lease_ms', 'must be a whole number of 1 or more')
end
local row = read_row(id)
if not row or row.wrong_type then
  return redis.error_reply('EMQSTALE job gone')
end
if row[ATTEMPTS] ~= token then
  return redis.error_reply('EMQSTALE token mismatch')
end
if row[STATE] ~= 'active' or not redis.call('ZSCORE', q.active, id) then
  return redis.error_reply('EMQSTATE not active')
end
local key = row_key(id)
if note and note ~= '' then
  local kind = redis.call('TYPE', key .. ':log').ok
  if kind ~= 'list' and kind ~= 'none' then
    return redis.error_reply('EMQSTATE the log is not a list')
  end
end

even_when_full()
redis.call('ZADD', q.active, 'XX', digits(now_ms + lease_ms), id)
if progress and progress ~= '' then
  redis.call('HSET', key, 'progress', progress)
end
if note and note ~= '' then
  redis.call('RPUSH', key .. ':log', note)
  redis.call('LTRIM', key .. ':log', -50, -1)
  if not row[ATTACHED] then
    redis.call('HSET', key, 'attached', 'log')
  elseif not string.find(row[ATTACHED], 'log', 1, true) then
    redis.call('HSET', key, 'attached', row[ATTACHED] .. ',log')
  end
end
return {row[CANCEL] and 'cancelled' or 'held'}
