-- take: claims pending jobs for one owner, each under its own lease.
-- include  queue checks ids now_ms totals
-- seldom   finish trim look_closely
-- defines  take

-- Claims up to `limit` jobs with up to `most_bytes` of payload, but always one job; a job that has stalled before
-- travels alone, and one that has expired is cancelled. Appends ticket, fields (`name=value` with commas) and payload
-- of each to `answer`; answers how many it took, and how many left `pending`.
--
-- Each field that is asked for costs time, so rows that differ from no default, or in `retain` alone, are known by how
-- many fields they have; others are asked for all that a worker needs; and what is not sound is looked at closely.
local function take(answer, limit, owner, lease_ms, most_bytes, retention, window)
  local call, try = redis.call, redis.pcall
  local ids = call('ZRANGE', q.pending, '0', digits((window or limit) - 1))
  local keys, tokens, members, deadline = {}, {}, {}, digits(now_ms + lease_ms)
  local taken, seen, bytes, at, broken, ghosts = 0, 0, 0, #answer, nil, 0
  local handed, sound, freed, expired
  for i = 1, #ids do
    if taken == limit then
      break
    end
    local id = ids[i]
    local key = row_prefix .. id
    local size = try('HLEN', key)
    local token, payload, fields, has_stalled = nil, nil, '', false
    if size == 3 or size == 4 then
      local row
      if size == 3 then
        row = call('HMGET', key, 'state', 'attempts', 'payload')
      else
        row = call('HMGET', key, 'state', 'attempts', 'payload', 'retain')
      end
      if row[1] == 'pending' and (size == 3 or row[4]) then
        local attempts = row[2]
        token = attempts == '0' and '1' or attempts == '1' and '2' or attempts == '2' and '3' or nil
        payload = row[3]
      end
    end
    if not (token and payload and #id <= 64 and (string.find(id, '^JOB%w+$') or is_job_id(id))) then
      if not handed then
        handed = {'uncounted=', 'failures=', 'stalled=', 'max_attempts=', 'priority=', 'backoff=', 'timeout=',
          'on_error='}
        sound = {'^%d+$', '^%d+$', '^%d+$', '^[1-9]%d*$', '^%-?%d%d?$', '^[%w:.+-]+$', '^[1-9]%d*$', '^[^,=]*$'}
      end
      local row = try('HMGET', key, 'uncounted', 'failures', 'stalled', 'max_attempts', 'priority', 'backoff',
        'timeout', 'on_error', 'unknown_since', 'state', 'attempts', 'payload', 'expires_at', 'unique')
      local is_sound = row[10] == 'pending' and row[11] and row[12] and not row[9] and #row[11] < 16
        and string.find(row[11], '^%d+$') and is_job_id(id)
      for field = 1, 8 do
        local value = row[field]
        if is_sound and value then
          is_sound = string.find(value, sound[field]) and (#value < 16 or field == 6 or field == 8)
          fields = fields .. (fields == '' and '' or ',') .. handed[field] .. value
        end
      end
      local attempts, expires_at, unique = row[11], row[13], row[14]
      payload, has_stalled = row[12], row[3] and row[3] ~= '0'
      if not is_sound or (expires_at and not whole(expires_at, 0)) then
        local word, a, b, c, whole_row = seldom().look_closely(id, handed)
        is_sound = word == 'sound'
        if is_sound then
          attempts, payload, fields = a, b, c
          has_stalled = whole_row[STALLED] and whole_row[STALLED] ~= '0'
          expires_at, unique = whole_row[EXPIRES_AT], whole_row[UNIQUE]
        elseif word == 'broken' then
          broken = broken or {}
          broken[#broken + 1] = {a, b}
        else
          ghosts = ghosts + 1
        end
      end
      token = is_sound and digits(tonumber(attempts) + 1)
      if token and expires_at then
        local left = tonumber(expires_at) - now_ms
        if left > 0 then
          fields = fields .. (fields == '' and '' or ',') .. 'expires_in=' .. digits(left)
        else
          expired, token = expired or {}, nil
          expired[#expired + 1] = seldom().read_row(id)
        end
      end
      local held = token and unique and string.match(unique, '^queued %S+ %d+ (.+)$')
      if held then
        freed = freed or {}
        freed[id] = q['unique:' .. held]
      end
    end
    if token then
      bytes = bytes + #payload
      if taken > 0 and (has_stalled or bytes > most_bytes) then
        if freed then
          freed[id] = nil
        end
        break
      end
      taken = taken + 1
      keys[taken], tokens[taken] = key, token
      members[2 * taken - 1], members[2 * taken] = deadline, id
      answer[at + 1], answer[at + 2], answer[at + 3] = id .. ':' .. token, fields, payload
      at = at + 3
    end
    seen = i
    if has_stalled and token then
      break
    end
  end
  if seen == 0 then
    return 0, 0
  end
  if broken or expired then
    seldom().read_retention(retention)
    seldom().touch_sets()
  end

  call('ZREMRANGEBYRANK', q.pending, '0', digits(seen - 1))
  for i = 1, taken do
    call('HSET', keys[i], 'state', 'active', 'attempts', tokens[i], 'owner', owner, 'started_at', now_text)
  end
  for i = 1, 2 * taken, 1000 do
    call('ZADD', q.active, unpack(members, i, math.min(i + 999, 2 * taken)))
  end
  if freed then -- Keys that are held only while their job waits.
    for id, unique_key in pairs(freed) do
      if try('GET', unique_key) == id then
        call('DEL', unique_key)
      end
    end
  end
  if expired then
    for _, row in ipairs(expired) do
      seldom().expire(row)
    end
    seldom().trim_ended()
  end
  -- Where all that was looked at came too late, more is looked at, so that what has gone bad holds up nothing.
  if expired and taken == 0 and not window and #ids == limit then
    local more, gone = take(answer, limit, owner, lease_ms, most_bytes, retention, 200)
    taken, seen = more, seen + gone
  end
  if broken then
    for _, pair in ipairs(broken) do
      seldom().bury_broken(pair[1], pair[2])
    end
  end
  if ghosts > 0 then
    count('ghosts', ghosts)
  end
  return taken, seen
end
