-- registration: a schedule as its queue holds it: a member of `repeat`, whose score is its next slot, and a hash.
-- include  checks
-- defines  check_name packed_texts unpacked_texts slot_of

-- What is registered and has no next slot, since it is paused or finished, has the score inf.

-- Why a name cannot be a schedule's, as an error; nil when it can.
local function check_name(name)
  if not name or name == '' or #name > 200 or string.find(name, '%c') then
    return refuse('name', 'must be 1 to 200 bytes without control characters')
  end
  return nil
end

-- Texts as one, each with its length before it.
local function packed_texts(texts, first, last)
  local parts, n = {}, 0
  for i = first, last do
    parts[n + 1], parts[n + 2], parts[n + 3] = #texts[i], ':', texts[i]
    n = n + 3
  end
  return table.concat(parts)
end

-- The texts of one that packed_texts made, at most 200; nil for another.
local function unpacked_texts(text)
  local texts, n, at = {}, 0, 1
  while at <= #text do
    local _, colon, size = string.find(text, '^(%d+):', at)
    if not colon or n == 200 then
      return nil
    end
    at = colon + 1 + tonumber(size)
    n = n + 1
    texts[n] = string.sub(text, colon + 1, at - 1)
  end
  return at == #text + 1 and texts or nil
end

-- A score as the digits of a slot; '' for none.
local function slot_of(score)
  local number = tonumber(score or 'inf')
  return number < LARGEST and number > -LARGEST and digits(number) or ''
end
