-- Lists stay fast with a million closed tasks. A migration runs in a transaction, so the indexes block
-- steps while they are made: seconds for a million tasks.

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '600s';

-- The board covers the newest closed tasks. Written once for each task, when it is closed.
-- squawk-ignore require-concurrent-index-creation
CREATE INDEX tasks_closed ON tasks (id) WHERE NOT live;

-- People name a task by the last digits of its ID.
-- squawk-ignore require-concurrent-index-creation
CREATE INDEX tasks_by_suffix ON tasks ("right"(id::text, 8));

-- Without statistics of the digits, a search for them would read all tasks.
ANALYZE tasks;
