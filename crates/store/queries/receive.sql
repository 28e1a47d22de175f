-- Inserts a task with its first history entries and its rules. An existing task is left unchanged.
--
-- $1 submitted task, $2 task loop, $3 list columns, $4 history entries, $5 branch,
-- $6 version of the rules, $7 rules.
WITH ruled AS (
    -- As every text: equal ones are stored once, and one that is used again counts as new.
    INSERT INTO texts (hash, content) VALUES ($6, $7)
    ON CONFLICT (hash) DO UPDATE SET created_at = now()
    WHERE texts.created_at < now() - interval '1 day'
),
added AS (
    INSERT INTO tasks (
        id, project, created_at, title, description, type, acceptance_criteria, labels, depends_on,
        suggested_agent, issue_url, issue_number, metadata, revision, memory, entries, priority, state,
        phase, live, paused, since, risk, iterations, retries, councils, spent_usd, spent_tokens,
        spend_estimated, budget_usd, question, asked_at, next, wake_at, due_at, failures, branch
    )
    SELECT
        t.id, t.project, p.since, t.title, t.description, t.type, t.acceptance_criteria, t.labels,
        t.depends_on, t.suggested_agent, t.issue_url, t.issue_number, coalesce(t.metadata, '{}'), 0, $2,
        p.entries, p.priority, p.state, p.phase, p.live, p.paused, p.since, p.risk, p.iterations,
        p.retries, p.councils, p.spent_usd, p.spent_tokens, p.spend_estimated,
        p.budget_usd, p.question, p.asked_at, p.next, p.wake_at, p.due_at, p.failures,
        -- Workers that do not know migration 24 name the branch after the ID, and can take over the task
        -- until no such program can run.
        CASE WHEN (SELECT oldest_version FROM schema_compatibility) >= 24 THEN $5::text END
    FROM jsonb_to_record($1) AS t (
        id uuid, project uuid, title text, description text, type text, acceptance_criteria jsonb,
        labels text [], depends_on uuid [], suggested_agent text, issue_url text, issue_number bigint,
        metadata jsonb
    ), jsonb_to_record($3) AS p (
        entries bigint, priority text, state text, phase text, live boolean, paused boolean,
        since timestamptz, risk text, iterations integer, retries integer, councils integer,
        spent_usd numeric, spent_tokens bigint, spend_estimated boolean, budget_usd numeric,
        question jsonb, asked_at timestamptz, next jsonb, wake_at timestamptz, due_at timestamptz,
        failures integer
    )
    ON CONFLICT (id) DO NOTHING
    RETURNING id, project
),
logged AS (
    INSERT INTO entries
    (
        task, sequence, project, at, at_nanos, format, name, "from", "to", "on", actor, auth, reason,
        data
    )
    SELECT
        added.id, e.sequence, added.project, e.at, e.at_nanos, e.format, e.name, e."from", e."to",
        e."on", e.actor, e.auth, e.reason, e.data
    FROM added, jsonb_to_recordset($4) AS e (
        sequence bigint, at timestamptz, at_nanos smallint, format smallint, name text,
        "from" text, "to" text, "on" text, actor jsonb, auth jsonb, reason text, data jsonb
    )
    -- Each entry is chained to the one before it.
    ORDER BY e.sequence
    RETURNING task, sequence
),
told AS (
    SELECT pg_notify('tamma_entries', logged.task || ' ' || max(logged.sequence)) AS done
    FROM logged GROUP BY logged.task
)
SELECT
    (SELECT count(*) FROM added) AS "added!",
    (SELECT count(*) FROM told) AS "told!"
