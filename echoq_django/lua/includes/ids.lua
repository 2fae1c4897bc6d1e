-- ids: what the id of a job looks like.
-- defines  is_job_id NO_ID

-- What is said of a row under anything else, which no verb could name.
local NO_ID = 'the id is not JOB and 1 to 61 letters, digits or _'

-- Most ids are letters and digits alone, which costs less to see.
local function is_job_id(id)
  return type(id) == 'string' and #id <= 64
    and (string.find(id, '^JOB%w+$') or string.find(id, '^JOB[%w_]+$')) ~= nil
end
