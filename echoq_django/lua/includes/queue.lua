-- queue: the keys of the queue that KEYS[1] belongs to.
-- defines  base q row_prefix row_key even_when_full

local closed = KEYS[1] and string.find(KEYS[1], '}:', 1, true)
if not closed then
  return redis.error_reply('ERR KEYS[1] must be a key of a queue, prefix:{queue}:...')
end
local base = string.sub(KEYS[1], 1, closed + 1)
-- A script stores the keys that were declared to it; a key that was not is derived when it is first used.
local q = setmetatable({}, {
  __index = function(keys, name)
    local key = base .. name
    rawset(keys, name, key)
    return key
  end,
})
local row_prefix = base .. 'job:'

local function row_key(id)
  return row_prefix .. id
end

-- A server whose memory is full refuses a script whose first write needs more, and lets one through that has written
-- already: what workers need to give memory back begins with a write that changes nothing.
local function even_when_full()
  redis.call('HDEL', q.meta, '')
end
