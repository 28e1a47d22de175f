-- Temporal namespaces of organisations. Workflows stay in the namespace in which they were started, also
-- after their project has gone to another organisation.

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '60s';

-- Namespace of the organisation's workflows. Nothing for that of the installation.
ALTER TABLE organisations ADD COLUMN namespace text;

-- There are few organisations.
-- squawk-ignore require-concurrent-index-creation
CREATE UNIQUE INDEX organisations_by_namespace ON organisations (namespace);

-- Namespace of the workflow of a task or pipeline, written before it starts. Nothing for that of the
-- installation.
ALTER TABLE task_workflows ADD COLUMN namespace text;

-- Written later than the namespace. Programs of the version before read it as a value that can be missing.
-- squawk-ignore ban-drop-not-null
ALTER TABLE task_workflows ALTER COLUMN run_id DROP NOT NULL;

-- Namespace of the queue's workflow.
ALTER TABLE merge_queues ADD COLUMN namespace text;
