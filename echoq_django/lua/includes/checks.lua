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

-- A number as decimal digits; tostring would write large ones with an exponent.
local function digits(number)
  return string.format('%.0f', number)
end

-- The id and the token of a ticket `<id>:<token>`, or nil.
local function split_ticket(ticket)
  local id, token = string.match(ticket or '', '^(JOB[%w_]+):(%d+)$')
  if not id or #id > 64 then
    return nil
  end
  return id, token
end

local function refuse(argument, remedy)
  return redis.error_reply('ERR ' .. argument .. ' ' .. remedy)
end
