-- free_unique: let a unique key go, whatever holds it; its job stays as it is.
-- moves    none
-- KEYS     meta
-- ARGV     key
-- answers  {"freed", id} | {"free"}
-- include  queue checks now_ms rows bell place unique

q.meta = KEYS[1]
local key = ARGV[1]
local holder = holder_of(key)
redis.call('GET', q['unique:' .. key])

redis.call('DEL', q['unique:' .. key])
if holder then
  return {'freed', holder.id}
end
return {'free'}
