-- Branch that the change of a task is delivered on. Tasks of earlier versions have none; theirs is
-- named after the ID.

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '60s';

ALTER TABLE tasks ADD COLUMN branch text;
