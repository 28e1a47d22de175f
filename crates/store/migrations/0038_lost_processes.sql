-- A worker can look dead while Temporal is down, and come back. So the processes that have not ended a job
-- are kept by name: each counts once, and the one that runs the job does not count.

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '60s';

-- Other processes that have started the job and not ended it. Programs from before this migration count
-- changes of the process in `lost`, which no later one reads.
ALTER TABLE inline_jobs ADD COLUMN others text[] NOT NULL DEFAULT '{}';

-- The other processes of a job, once this process runs it.
CREATE FUNCTION other_processes(job inline_jobs, process text) RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT array_remove(array_remove(job.others, job.process) || job.process, process)
$$;
