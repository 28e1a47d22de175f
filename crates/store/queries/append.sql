-- Appends an update to a run in one statement: one transaction, one round trip. Repeating an update
-- has no effect.
--
-- $1 task, $2 job number, $3 attempt, $4 log lines, $5 model calls, $6 number of the last line,
-- $7 number of the last call, $8 session, $9 model, $10 usage so far, $11 tool calls that run now, or
-- null if they have not changed.
WITH relaxed AS (
    -- Other notifiers wait until this transaction commits, so it does not wait for the disk. Lines
    -- lost in a crash of the database server are still in the transcript.
    SELECT set_config('synchronous_commit', 'off', true) AS done
),
run AS (
    UPDATE runs SET
        lines = greatest(runs.lines, $6),
        calls = greatest(runs.calls, $7),
        session = coalesce($8, runs.session),
        model = coalesce($9, runs.model),
        running = coalesce($11, runs.running),
        tokens_input = CASE WHEN u.told THEN u.tokens_input ELSE runs.tokens_input END,
        tokens_cached = CASE WHEN u.told THEN u.tokens_cached ELSE runs.tokens_cached END,
        tokens_output = CASE WHEN u.told THEN u.tokens_output ELSE runs.tokens_output END,
        cost_usd = CASE WHEN u.told THEN u.cost_usd ELSE runs.cost_usd END,
        metered = CASE WHEN u.told THEN u.metered ELSE runs.metered END
    FROM relaxed, jsonb_to_record($10) AS u (
        told boolean, tokens_input bigint, tokens_cached bigint, tokens_output bigint,
        cost_usd numeric, metered boolean
    )
    WHERE task = $1 AND ticket = $2 AND attempt = $3 AND relaxed.done IS NOT NULL
    RETURNING task, ticket, attempt, project
),
lined AS (
    INSERT INTO run_lines (task, ticket, attempt, sequence, project, at, kind, text, data)
    SELECT
        run.task, run.ticket, run.attempt, l.sequence, run.project, l.at, l.kind, l.text, l.data
    FROM run, jsonb_to_recordset($4) AS l (
        sequence bigint, at timestamptz, kind text, text text, data jsonb
    )
    ON CONFLICT DO NOTHING
    RETURNING sequence
),
called AS (
    INSERT INTO model_calls
    (
        task, ticket, attempt, sequence, project, at, model, status, tokens_input, tokens_cached,
        tokens_output, cost_usd, first_byte_ms, took_ms, note
    )
    SELECT
        run.task, run.ticket, run.attempt, c.sequence, run.project, c.at, c.model, c.status,
        c.tokens_input, c.tokens_cached, c.tokens_output, c.cost_usd, c.first_byte_ms, c.took_ms,
        c.note
    FROM run, jsonb_to_recordset($5) AS c (
        sequence bigint, at timestamptz, model text, status integer, tokens_input bigint,
        tokens_cached bigint, tokens_output bigint, cost_usd numeric, first_byte_ms bigint,
        took_ms bigint, note text
    )
    ON CONFLICT DO NOTHING
),
told AS (
    SELECT pg_notify('tamma_lines', run.task || ' ' || run.ticket || ' ' || run.attempt) AS done
    FROM run
)
SELECT
    (SELECT count(*) FROM told) AS "runs!",
    (SELECT count(*) FROM lined) AS "lines!"
