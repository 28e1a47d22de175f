-- Saves a run of a pipeline with its phases in one statement. Saving it again, or after a newer one,
-- has no effect.
--
-- $1 pipeline, $2 run number, $3 revision, $4 run, $5 pipeline name, $6 state, $7 phase, $8 live,
-- $9 needs a person, $10 started by, $11 started at, $12 base, $13 story path, $14 branch,
-- $15 commit, $16 delivery error, $17 phases, $18 alerts, $19 question of the state, $20 its time.
WITH saved AS (
    UPDATE pipelines SET
        version = version + 1,
        run_number = $2,
        revision = $3,
        run = $4,
        pipeline = $5,
        state = $6,
        phase = $7,
        live = $8,
        needs_person = $9,
        started_by = $10,
        started_at = $11,
        updated_at = clock_timestamp(),
        base = coalesce($12, base),
        story_path = coalesce($13, story_path),
        branch = coalesce($14, branch),
        commit = coalesce($15, commit),
        delivery_error = $16
    WHERE id = $1 AND (run_number < $2 OR (run_number = $2 AND (revision < $3 OR run IS NULL)))
    RETURNING id, project, version
),

phased AS (
    INSERT INTO pipeline_phases
    (
        pipeline, run_number, phase, name, status, signal, reason, completed_at, tokens, cost_usd,
        took_ms, output
    )
    SELECT
        saved.id, $2, p.phase, p.name, p.status, p.signal, p.reason, p.completed_at, p.tokens,
        p.cost_usd, p.took_ms, p.output
    FROM saved, jsonb_to_recordset($17) AS p (
        phase smallint, name text, status text, signal text, reason text, completed_at timestamptz,
        tokens bigint, cost_usd numeric, took_ms bigint, output text
    )
    ON CONFLICT (pipeline, run_number, phase) DO UPDATE SET
        name = excluded.name, status = excluded.status, signal = excluded.signal,
        reason = excluded.reason, completed_at = excluded.completed_at, tokens = excluded.tokens,
        cost_usd = excluded.cost_usd, took_ms = excluded.took_ms, output = excluded.output
    RETURNING phase
),

alerted AS (
    INSERT INTO alerts (task, project, question, kind, severity, cause, answers, at)
    SELECT saved.id, saved.project, a.question, a.kind, a.severity, a.cause, a.answers, a.at
    FROM saved, jsonb_to_recordset($18) AS a (
        question integer, kind text, severity text, cause jsonb, answers text [], at timestamptz
    )
    ON CONFLICT (task, question) WHERE question IS NOT NULL DO NOTHING
    RETURNING id
),

posted AS (
    INSERT INTO outbox (alert, reminder) SELECT id, 0 FROM alerted
    ON CONFLICT (alert, reminder) DO NOTHING
),

settled AS (
    UPDATE alerts SET settled_at = $20
    FROM saved
    WHERE alerts.task = saved.id AND alerts.settled_at IS NULL
        AND alerts.question IS DISTINCT FROM $19
),

told AS (
    SELECT pg_notify('tamma_entries', saved.id || ' ' || saved.version) AS done
    FROM saved
)

SELECT
    (SELECT count(*) FROM told) AS "saved!",
    (SELECT count(*) FROM phased) AS "phases!",
    (SELECT count(*) FROM pipelines WHERE id = $1) AS "found!"
