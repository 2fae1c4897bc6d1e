-- checks: what an argument must look like.
-- constants  LARGEST=9007199254740991
-- defines  whole digits split_ticket refuse

-- The whole number that a text holds, or nil. tonumber alone would take nan, inf, 0x10, 1e3 and ' 5 '.
local function whole(text, lowest, highest)
  if type(text) ~= 'string' or not string.find(text, '^%-?%d+$') then
    return nil
  end
  local number = tonumber(text)
  if number < (lowest or -LARGEST) or number > (highest or LARGEST) then
    return nil
  end
  return number
end

-- A whole number as decimal digits; tostring would write large ones with an exponent. '%d' costs half as much, and
-- holds 32 bits on some servers.
local function digits(number)
  return string.format(number < 2147483648 and number > -2147483648 and '%d' or '%.0f', number)
end

-- The id and the token of a ticket `<id>:<token>`, or nil. Most ids are letters and digits alone, which costs less to
-- see.
local function split_ticket(ticket)
  local id, token = string.match(ticket or '', '^(JOB%w+):(%d+)$')
  if not id then
    id, token = string.match(ticket or '', '^(JOB[%w_]+):(%d+)$')
  end
  if not id or #id > 64 then
    return nil
  end
  return id, token
end

local function refuse(argument, remedy)
  return redis.error_reply('ERR ' .. argument .. ' ' .. remedy)
end
