-- Boards and lists with filters stay fast with a hundred thousand open and a million closed tasks. A
-- migration runs in a transaction, so the indexes block steps while they are made.

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '600s';

-- Counts and first cards of open tasks. With the columns of filters and orders, the table need not be read.
-- squawk-ignore require-concurrent-index-creation
CREATE INDEX tasks_open ON tasks (state, id)
INCLUDE (project, type, priority, risk, paused, asked_at, since, spent_usd, updated_at)
WHERE live;

-- Closed tasks with a filter that few of them match.
-- squawk-ignore require-concurrent-index-creation
CREATE INDEX tasks_closed_by_type ON tasks (type, id) WHERE NOT live;
-- squawk-ignore require-concurrent-index-creation
CREATE INDEX tasks_closed_by_priority ON tasks (priority, id) WHERE NOT live;
-- squawk-ignore require-concurrent-index-creation
CREATE INDEX tasks_closed_by_risk ON tasks (risk, id) WHERE NOT live;

-- Earlier versions took labels of any length when a task was added, and one of some thousand characters
-- does not fit in an index. The limit is `MAX_LABEL_CHARS`.
UPDATE tasks SET labels = ARRAY(SELECT left(label, 50) FROM unnest(labels) AS label)
WHERE EXISTS (SELECT FROM unnest(labels) AS label WHERE char_length(label) > 50);

-- Tasks with a label. Most tasks have none, and are not in the index.
-- squawk-ignore require-concurrent-index-creation
CREATE INDEX tasks_by_label ON tasks USING gin (labels) WHERE labels <> '{}';

ANALYZE tasks;
