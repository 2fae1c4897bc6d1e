-- promote_due: moves scheduled jobs that are due to where claims find them.
-- include  queue checks ids now_ms rows bell place finish sort_out
-- defines  promote_due

-- Moves up to `limit` jobs, oldest score first; answers how many were due. An id without a row is dropped and counted,
-- as is one whose row says that it is elsewhere (EchoMQ's native promote). What has expired is cancelled.
local function promote_due(limit)
  local ids = redis.call('ZRANGE', q.schedule, '-inf', now_text, 'BYSCORE', 'LIMIT', 0, limit)
  if #ids == 0 then
    return 0
  end
  local rows, broken, strays = sort_out(ids, 'scheduled')

  redis.call('ZREM', q.schedule, unpack(ids))
  for _, row in ipairs(rows) do
    if has_expired(row) then
      expire(row)
    else
      place(row.id, number_of(row, PRIORITY))
      redis.call('HSET', row_key(row.id), 'state', 'pending')
    end
  end
  bury_rest(broken, strays)
  if #rows > 0 then
    ring()
  end
  return #ids
end
