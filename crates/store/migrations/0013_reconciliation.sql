-- Comparison of stored tasks with their workflows in Temporal.

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '60s';

-- One row: how far the comparison has come.
CREATE TABLE reconciliation (
    only_row boolean PRIMARY KEY DEFAULT true,
    -- Part of the marker's ID, because several installations can share a namespace of Temporal.
    installation uuid NOT NULL DEFAULT gen_random_uuid(),
    -- Workflows that were closed before this time have been compared.
    watermark timestamptz NOT NULL,
    -- Run ID of the marker workflow. If Temporal has another one, one side was restored.
    marker text,
    CONSTRAINT reconciliation_only_row CHECK (only_row)
);

-- Run ID of a task's workflow when it was last compared. Another one may have been reset.
CREATE TABLE task_workflows (
    task uuid PRIMARY KEY,
    run_id text NOT NULL
);
