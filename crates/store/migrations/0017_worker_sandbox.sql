-- Isolation of agents on a worker's machine, as the worker describes it.

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '60s';

ALTER TABLE workers ADD COLUMN sandbox text;
