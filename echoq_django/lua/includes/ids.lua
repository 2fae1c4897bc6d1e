-- ids: what the id of a job looks like.
-- defines  is_job_id

local function is_job_id(id)
  return type(id) == 'string' and #id <= 64 and string.find(id, '^JOB[%w_]+$') ~= nil
end
