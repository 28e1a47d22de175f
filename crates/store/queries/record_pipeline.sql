-- Saves a run of a pipeline with its phases in one statement. Saving it again, or after a newer one,
-- has no effect.
--
-- $1 pipeline, $2 run number, $3 revision, $4 run, $5 live, $6 needs a person, $7 started by,
-- $8 started at, $9 base, $10 story path, $11 branch, $12 commit, $13 delivery error, $14 phases,
-- $15 alerts, $16 question of the state, $17 its time.
WITH saved AS (
    UPDATE pipelines SET
        version = version + 1,
        run_number = $2,
        revision = $3,
        run = $4,
        live = $5,
        needs_person = $6,
        started_by = $7,
        started_at = $8,
        updated_at = clock_timestamp(),
        base = coalesce($9, base),
        story_path = coalesce($10, story_path),
        branch = $11,
        commit = $12,
        delivery_error = $13
    WHERE id = $1 AND (run_number < $2 OR (run_number = $2 AND (revision < $3 OR run IS NULL)))
    RETURNING id, project, version
),

phased AS (
    INSERT INTO pipeline_phases
    (
        pipeline, run_number, phase, name, status, signal, reason, completed_at, tokens
    )
    SELECT
        saved.id, $2, p.phase, p.name, p.status, p.signal, p.reason, p.completed_at, p.tokens
    FROM saved, jsonb_to_recordset($14) AS p (
        phase smallint, name text, status text, signal text, reason text, completed_at timestamptz,
        tokens bigint
    )
    ON CONFLICT (pipeline, run_number, phase) DO UPDATE SET
        name = excluded.name, status = excluded.status, signal = excluded.signal,
        reason = excluded.reason, completed_at = excluded.completed_at, tokens = excluded.tokens
    RETURNING phase
),

alerted AS (
    INSERT INTO alerts (task, project, question, kind, severity, cause, answers, at)
    SELECT saved.id, saved.project, a.question, a.kind, a.severity, a.cause, a.answers, a.at
    FROM saved, jsonb_to_recordset($15) AS a (
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
    UPDATE alerts SET settled_at = $17
    FROM saved
    WHERE alerts.task = saved.id AND alerts.settled_at IS NULL
        AND alerts.question IS DISTINCT FROM $16
),

told AS (
    SELECT pg_notify('tamma_entries', saved.id || ' ' || saved.version) AS done
    FROM saved
)

SELECT
    (SELECT count(*) FROM told) AS "saved!",
    (SELECT count(*) FROM phased) AS "phases!",
    (SELECT count(*) FROM pipelines WHERE id = $1) AS "found!"
