-- place: where claims find a job.
-- include  queue
-- defines  place

-- Puts a job where claims find it.
local function place(id, priority)
  redis.call('ZADD', q.pending, 0 - priority, id)
end
