-- Money that runs may still spend. A run reserves it before it starts, so that runs that start at
-- once do not start from the same sum.

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '60s';

-- One row for each job with an agent. A later attempt takes the row of the one before. A settled row
-- counts until the job's usage is recorded; then it is removed.
CREATE TABLE run_reservations (
    task uuid NOT NULL,
    ticket bigint NOT NULL,
    attempt bigint NOT NULL,
    project uuid NOT NULL,
    -- What the run may spend at most. Nothing where no budget limits it.
    usd numeric,
    tokens bigint,
    -- What an attempt counts as if nobody can tell its cost.
    estimate_usd numeric NOT NULL,
    -- Whether all model calls of the run are counted.
    metered boolean NOT NULL,
    reserved_at timestamptz NOT NULL,
    -- A run that does not renew it before has lost its worker.
    until timestamptz NOT NULL,
    -- What all attempts at the job have spent; nothing while the run lives.
    settled_at timestamptz,
    spent_usd numeric,
    spent_tokens bigint,
    PRIMARY KEY (task, ticket)
);

CREATE INDEX run_reservations_by_project ON run_reservations (project, settled_at);

-- Sums up what the attempts at a job have spent, as far as it is recorded. An attempt with a call of
-- unknown cost counts as much as the estimate, at least; so does one whose calls are not counted and
-- whose agent has not reported its cost.
CREATE FUNCTION job_spend(
    of_task uuid, of_ticket bigint, estimate numeric, is_metered boolean
) RETURNS TABLE (total_usd numeric, total_tokens bigint) LANGUAGE sql STABLE AS $$
    WITH calls AS (
        SELECT
            model_calls.attempt,
            sum(model_calls.cost_usd) AS usd,
            count(*) FILTER (WHERE model_calls.cost_usd IS NULL) AS unpriced,
            sum(
                coalesce(model_calls.tokens_input, 0) + coalesce(model_calls.tokens_cached, 0)
                + coalesce(model_calls.tokens_output, 0)
            ) AS tokens
        FROM model_calls
        WHERE
            model_calls.task = of_task AND model_calls.ticket = of_ticket
            AND model_calls.at >= (
                SELECT min(runs.started_at) - interval '1 day' FROM runs
                WHERE runs.task = of_task AND runs.ticket = of_ticket
            )
        GROUP BY model_calls.attempt
    ),
    attempts AS (
        SELECT
            greatest(
                runs.cost_usd, calls.usd,
                CASE
                    WHEN calls.unpriced > 0 OR (NOT is_metered AND runs.cost_usd IS NULL)
                        THEN estimate
                    ELSE 0
                END
            ) AS usd,
            greatest(
                coalesce(runs.tokens_input, 0) + coalesce(runs.tokens_cached, 0)
                + coalesce(runs.tokens_output, 0),
                calls.tokens
            ) AS tokens
        FROM runs
        LEFT JOIN calls ON runs.attempt = calls.attempt
        WHERE runs.task = of_task AND runs.ticket = of_ticket
    )
    SELECT coalesce(sum(attempts.usd), 0), coalesce(sum(attempts.tokens), 0)::bigint FROM attempts
$$;

-- Jobs that a worker runs inside a workflow task. Temporal does not tell the next worker that the one
-- before died, so the row of a job that has not ended does.
CREATE TABLE inline_jobs (
    task uuid NOT NULL,
    ticket bigint NOT NULL,
    -- The process that runs it.
    process text NOT NULL,
    -- How many other processes ended during the job.
    lost bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (task, ticket)
);
