-- tell: what becomes of occurrences, in the stream from which the pump writes it down.
-- include  queue checks now_ms rows
-- defines  tell tell_end

-- Adds an entry of names and values. A foreign key in the stream's place costs the entry, never a job.
local function tell(...)
  redis.pcall('XADD', q.occurrences, 'MAXLEN', '~', '100000', '*', ...)
end

-- Tells how the job of an occurrence ended; `origin` in its row says whose it is, where it is one.
local function tell_end(row, outcome)
  local name, slot = string.match(row[ORIGIN] or '', '^schedule (.+) (%d+)$')
  if name then
    tell('schedule', name, 'slot', slot, 'job', row.id, 'outcome', outcome, 'at', now_text)
  end
end
