-- Saves the next steps of a task in one statement: one transaction, one round trip.
--
-- $1 task, $2 expected revision, $3 expected number of entries, $4 new revision, $5 task loop,
-- $6 list columns, $7 history entries, $8 new alerts, $9 updates of earlier alerts, $10 approvals,
-- $11 iterations, $12 usage, $13 provider blocks, $14 number of the active job, $15 process that runs
-- it inside a workflow task. A statement can change a row only once, so no row may occur in two of them.
WITH before AS (
    -- A concurrent writer waits here and then finds another revision.
    SELECT id, project, risk FROM tasks
    WHERE id = $1 AND revision = $2 AND entries = $3
    FOR UPDATE
),
moved AS (
    UPDATE tasks SET
        revision = $4,
        memory = $5,
        entries = p.entries,
        priority = p.priority,
        -- Set by edits only.
        title = coalesce(p.title, tasks.title),
        labels = coalesce(p.labels, tasks.labels),
        state = p.state,
        phase = p.phase,
        live = p.live,
        paused = p.paused,
        since = p.since,
        risk = p.risk,
        iterations = p.iterations,
        retries = p.retries,
        councils = p.councils,
        spent_usd = p.spent_usd,
        spent_tokens = p.spent_tokens,
        spend_estimated = p.spend_estimated,
        budget_usd = p.budget_usd,
        question = p.question,
        asked_at = p.asked_at,
        next = p.next,
        wake_at = p.wake_at,
        due_at = p.due_at,
        failures = tasks.failures + p.failures,
        updated_at = clock_timestamp()
    FROM before, jsonb_to_record($6) AS p (
        entries bigint, priority text, state text, phase text, live boolean, paused boolean,
        since timestamptz, risk text, iterations integer, retries integer, councils integer,
        spent_usd numeric, spent_tokens bigint, spend_estimated boolean, budget_usd numeric,
        question jsonb, asked_at timestamptz, next jsonb, wake_at timestamptz, due_at timestamptz,
        failures integer, title text, labels text []
    )
    WHERE tasks.id = before.id
    RETURNING
        tasks.id, tasks.project, before.risk AS risk_before, job_facts(tasks.*) AS facts
),
-- Time of the last entry. After a crash, two workers can apply the same step at different times; if the
-- later time was stored, the next entries must not be earlier.
latest AS (
    SELECT heads.at, heads.at_nanos
    FROM before INNER JOIN history_heads AS heads ON heads.task = before.id
),
logged AS (
    INSERT INTO entries
    (
        task, sequence, project, at, at_nanos, format, name, "from", "to", "on", actor, auth, reason,
        data
    )
    SELECT
        moved.id, e.sequence, moved.project,
        CASE WHEN (e.at, e.at_nanos) < (latest.at, latest.at_nanos) THEN latest.at ELSE e.at END,
        CASE
            WHEN (e.at, e.at_nanos) < (latest.at, latest.at_nanos) THEN latest.at_nanos
            ELSE e.at_nanos
        END,
        e.format, e.name, e."from", e."to", e."on", e.actor, e.auth, e.reason, e.data
    FROM moved
    LEFT JOIN latest ON true
    CROSS JOIN jsonb_to_recordset($7) AS e (
        sequence bigint, at timestamptz, at_nanos smallint, format smallint, name text,
        "from" text, "to" text, "on" text, actor jsonb, auth jsonb, reason text, data jsonb
    )
    -- Each entry is chained to the one before it.
    ORDER BY e.sequence
    RETURNING sequence
),
alerted AS (
    INSERT INTO alerts
    (
        task, project, question, kind, severity, cause, answers, at, reminders, acknowledged_by,
        acknowledged_at, settled_at
    )
    SELECT
        moved.id, moved.project, a.question, a.kind, a.severity, a.cause, a.answers, a.at,
        a.reminders, a.acknowledged_by, a.acknowledged_at, a.settled_at
    FROM moved, jsonb_to_recordset($8) AS a (
        question integer, kind text, severity text, cause jsonb, answers text [], at timestamptz,
        reminders integer, acknowledged_by text, acknowledged_at timestamptz,
        settled_at timestamptz
    )
    ON CONFLICT (task, question) WHERE question IS NOT NULL DO UPDATE SET
        severity = excluded.severity,
        reminders = alerts.reminders + excluded.reminders + 1,
        acknowledged_by = coalesce(excluded.acknowledged_by, alerts.acknowledged_by),
        acknowledged_at = coalesce(excluded.acknowledged_at, alerts.acknowledged_at),
        settled_at = coalesce(excluded.settled_at, alerts.settled_at)
    RETURNING id, reminders
),
posted AS (
    INSERT INTO outbox (alert, reminder) SELECT id, reminders FROM alerted
    ON CONFLICT (alert, reminder) DO NOTHING
),
followed AS (
    UPDATE alerts SET
        acknowledged_by = coalesce(f.acknowledged_by, alerts.acknowledged_by),
        acknowledged_at = coalesce(f.acknowledged_at, alerts.acknowledged_at),
        settled_at = coalesce(f.settled_at, alerts.settled_at)
    FROM moved, jsonb_to_recordset($9) AS f (
        question integer, acknowledged_by text, acknowledged_at timestamptz, settled_at timestamptz
    )
    WHERE alerts.task = moved.id AND alerts.question = f.question
),
decided AS (
    INSERT INTO approvals
    (task, sequence, project, at, decision, decided_by, reason, plan, base, policy, risk)
    SELECT
        moved.id, d.sequence, moved.project, d.at, d.decision, d.decided_by, d.reason, d.plan,
        d.base, d.policy, coalesce(d.risk, moved.risk_before)
    FROM moved, jsonb_to_recordset($10) AS d (
        sequence bigint, at timestamptz, decision text, decided_by text, reason text, plan text,
        base text, policy text, risk text
    )
),
worked AS (
    INSERT INTO iterations
    (
        task, number, project, tier, engine, plan, started_at, commit, finished_at, outcome, score,
        fingerprint, judged_at
    )
    SELECT
        moved.id, i.number, moved.project, i.tier, i.engine, i.plan, i.started_at, i.commit,
        i.finished_at, i.outcome, i.score, i.fingerprint, i.judged_at
    FROM moved, jsonb_to_recordset($11) AS i (
        number integer, tier text, engine text, plan text, started_at timestamptz, commit text,
        finished_at timestamptz, outcome text, score integer, fingerprint jsonb,
        judged_at timestamptz
    )
    ON CONFLICT (task, number) DO UPDATE SET
        tier = coalesce(excluded.tier, iterations.tier),
        engine = coalesce(excluded.engine, iterations.engine),
        plan = coalesce(excluded.plan, iterations.plan),
        started_at = coalesce(excluded.started_at, iterations.started_at),
        commit = coalesce(excluded.commit, iterations.commit),
        finished_at = coalesce(excluded.finished_at, iterations.finished_at),
        outcome = coalesce(excluded.outcome, iterations.outcome),
        score = coalesce(excluded.score, iterations.score),
        fingerprint = coalesce(excluded.fingerprint, iterations.fingerprint),
        judged_at = coalesce(excluded.judged_at, iterations.judged_at)
),
used AS (
    INSERT INTO usage
    (task, ticket, project, job, at, tokens_input, tokens_cached, tokens_output, cost_usd)
    SELECT
        moved.id, u.ticket, moved.project, u.job, u.at, u.tokens_input, u.tokens_cached,
        u.tokens_output, u.cost_usd
    FROM moved, jsonb_to_recordset($12) AS u (
        ticket bigint, job text, at timestamptz, tokens_input bigint, tokens_cached bigint,
        tokens_output bigint, cost_usd numeric
    )
    ON CONFLICT (task, ticket) DO NOTHING
),
held AS (
    INSERT INTO holds (provider, until)
    SELECT h.provider, h.until
    FROM moved, jsonb_to_recordset($13) AS h (provider text, until timestamptz)
    ON CONFLICT (provider) DO UPDATE SET until = greatest(holds.until, excluded.until)
),
ended AS (
    -- A job that is no longer active has ended, and its process with it or not.
    DELETE FROM inline_jobs USING moved
    WHERE inline_jobs.task = moved.id AND inline_jobs.ticket IS DISTINCT FROM $14::bigint
),
begun AS (
    INSERT INTO inline_jobs (task, ticket, process)
    SELECT moved.id, $14::bigint, $15::text FROM moved
    WHERE $14::bigint IS NOT NULL AND $15::text IS NOT NULL
    ON CONFLICT (task, ticket) DO UPDATE SET
        process = excluded.process,
        others = other_processes(inline_jobs, excluded.process),
        starts = inline_jobs.starts + 1
    RETURNING cardinality(others)::bigint AS lost, starts
),
told AS (
    SELECT pg_notify('tamma_entries', $1::text || ' ' || max(logged.sequence)) AS done
    FROM logged HAVING count(*) > 0
)
SELECT
    (SELECT count(*) FROM told) AS "told!",
    (SELECT facts FROM moved) AS facts,
    (SELECT lost FROM begun) AS lost,
    (SELECT starts FROM begun) AS starts
