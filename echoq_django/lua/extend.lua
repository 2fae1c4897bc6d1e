-- extend: give the leases of jobs in hand a new deadline.
-- moves    none
-- KEYS     active
-- ARGV     lease_ms ticket...
-- answers  {"extended", "lost" or "cancelled", ticket, ...}: those that were lost and those whose cancel was asked for
-- include  queue checks now_ms extend_held

q.active = KEYS[1]
local lease_ms = whole(ARGV[1], 1)
if not lease_ms then
  return refuse('lease_ms', 'must be a whole number of 1 or more')
end
local answer = {'extended'}
extend_held(answer, lease_ms, 2)
return answer
