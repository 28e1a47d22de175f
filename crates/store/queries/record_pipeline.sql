-- Saves a run of a pipeline with its phases in one statement. Saving it again, or after a newer one,
-- has no effect.
--
-- $1 pipeline, $2 run number, $3 revision, $4 run, $5 pipeline name, $6 state, $7 phase, $8 live,
-- $9 needs a person, $10 started by, $11 started at, $12 base, $13 story path, $14 branch,
-- $15 commit, $16 delivery error, $17 phases.
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

told AS (
    SELECT pg_notify('tamma_entries', saved.id || ' ' || saved.version) AS done
    FROM saved
)

SELECT
    (SELECT count(*) FROM told) AS "saved!",
    (SELECT count(*) FROM phased) AS "phases!",
    (SELECT count(*) FROM pipelines WHERE id = $1) AS "found!"
