-- sweep: release, uncounted, the jobs that an executor or a child owns and nobody has in hand.
-- moves    active -> pending, active -> cancelled, scheduled -> pending
-- KEYS     active pending wake meta
-- ARGV     owner offset limit retention keep...
-- answers  {"swept", released, next offset or -1}; call again from the next offset
-- include  queue checks now_ms rows bell place totals finish trim settle held

q.active, q.pending, q.wake, q.meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, offset, limit = ARGV[1], whole(ARGV[2], 0), whole(ARGV[3], 1, 1000)
if not owner or not string.find(owner, '^[^:]+:[^:]+:[^:]+') then
  return refuse('owner', 'must be worker:child:incarnation, with or without :thread')
end
if not offset then
  return refuse('offset', 'must be a whole number, 0 or more')
end
if not limit then
  return refuse('limit', 'must be a whole number from 1 to 1000')
end
local wrong = read_retention(ARGV[4])
if wrong then
  return wrong
end
local keep = {}
for i = 5, #ARGV do
  keep[ARGV[i]] = true
end
touch_sets()
listen()
local ids = redis.call('ZRANGE', q.active, offset, offset + limit - 1)
local held = {}
for _, id in ipairs(ids) do
  local found = redis.pcall('HMGET', row_key(id), 'owner', 'attempts')
  if not found.err and is_owned_by(found[1], owner) and not keep[id .. ':' .. (found[2] or '')] then
    local row = read_row(id)
    if row and row[STATE] == 'active' and not fault_of(row) then
      held[#held + 1] = row
    end
  end
end

for _, row in ipairs(held) do
  redis.call('ZREM', q.active, row.id)
  apply('release', row, nil, '')
end
trim_ended()
count_up()
return {'swept', digits(#held), #ids < limit and '-1' or digits(offset + limit - #held)}
