-- unique_owner: which job holds a unique key now.
-- moves    none
-- KEYS     meta
-- ARGV     key
-- answers  {"held", id} | {"free"}
-- include  queue checks now_ms rows bell place unique

q.meta = KEYS[1]
local holder = holder_of(ARGV[1])
if holder then
  return {'held', holder.id}
end
return {'free'}
