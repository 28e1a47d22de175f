-- A job inside a workflow task that two living workers start in turns loses no process, and would be tried
-- without end. So its starts are counted, too.

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '60s';

-- Starts of the job without an end, with the current one.
ALTER TABLE inline_jobs ADD COLUMN starts bigint NOT NULL DEFAULT 1;
