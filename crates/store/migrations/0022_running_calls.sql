-- Tool calls that an agent runs now, for people who look on. A call becomes a log line when it ends.

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '60s';

ALTER TABLE runs ADD COLUMN running jsonb;
