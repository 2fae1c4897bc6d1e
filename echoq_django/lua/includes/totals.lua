-- totals: what is counted over the life of a queue.
-- include  queue checks
-- defines  totals count count_up

local totals = {}

-- Counts something that happened; `count_up` writes the sums at the end of the script.
local function count(what, n)
  totals[what] = (totals[what] or 0) + (n or 1)
end

-- A foreign key in their place costs the sums, never a job.
local function count_up()
  for what, n in pairs(totals) do
    redis.pcall('HINCRBY', q['metrics:totals'], what, digits(n))
  end
end
