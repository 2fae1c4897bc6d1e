-- held: sets of jobs by who holds them.
-- defines  is_owned_by

-- Whether `owner` (worker:child:incarnation:thread) is the holder that is asked for: an executor, or all of a child's.
local function is_owned_by(owner, asked)
  return owner == asked or (owner and string.sub(owner, 1, #asked + 1) == asked .. ':')
end
