-- Statements of a run that belong together, in one round trip each. They are functions, because each
-- must see what the one before it has written, or what others have written before a lock was free.

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '60s';

-- Sums up what the other jobs of a project have spent since a time, and what is reserved for them.
CREATE FUNCTION shared_budget_use(
    of_project uuid, since timestamptz, of_task uuid, of_ticket bigint
) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
        'spent',
        (
            (
                SELECT coalesce(sum(usage.cost_usd), 0) FROM usage
                WHERE usage.project = of_project AND usage.at >= since
            ) + (
                SELECT coalesce(sum(r.spent_usd), 0) FROM run_reservations AS r
                WHERE r.project = of_project AND r.settled_at >= since
                    AND NOT (r.task = of_task AND r.ticket = of_ticket)
            )
        )::text,
        'reserved',
        (
            SELECT coalesce(sum(r.usd), 0) FROM run_reservations AS r
            WHERE r.project = of_project AND r.settled_at IS NULL
                AND NOT (r.task = of_task AND r.ticket = of_ticket)
        )::text
    )
$$;

-- Reserves money for a run if what it was granted from is still true: `expected` is the use of its
-- budgets that the caller knows, or null for nothing spent and nothing reserved. In any case it returns
-- the use, the end of a block of the provider, and the latest run of the task.
CREATE FUNCTION reserve_run(
    of_task uuid, of_ticket bigint, of_attempt bigint, of_project uuid, of_provider text,
    run_estimate numeric, run_metered boolean, run_at timestamptz, run_until timestamptz,
    -- Start of the day's budget.
    midnight timestamptz, has_project_budget boolean, has_day_budget boolean,
    is_granted boolean, granted_usd numeric, granted_tokens bigint, expected jsonb,
    OUT is_reserved boolean, OUT budget_use jsonb, OUT blocked_until timestamptz, OUT latest jsonb
) LANGUAGE plpgsql AS $$
DECLARE
    earlier record;
    others record;
BEGIN
    SELECT h.until INTO blocked_until FROM holds AS h
    WHERE h.provider = of_provider AND h.until > run_at;
    SELECT to_jsonb(r) INTO latest FROM (
        SELECT
            runs.ticket, runs.attempt, runs.agent, runs.model, runs.tier, runs.mode, runs.session,
            runs.started_at, runs.ended_at, runs.outcome, runs.reason, runs.tokens_input,
            runs.tokens_cached, runs.tokens_output, runs.cost_usd::text AS cost, runs.metered,
            runs.transcript, runs.lines, runs.calls, runs.running
        FROM runs WHERE runs.task = of_task
        ORDER BY runs.ticket DESC, runs.attempt DESC LIMIT 1
    ) AS r;
    -- One at a time in each project, so that two runs never get the same money.
    PERFORM pg_advisory_xact_lock(hashtextextended('budget ' || of_project::text, 0));
    -- Runs that have lost their worker.
    UPDATE run_reservations AS r SET
        settled_at = run_at,
        (spent_usd, spent_tokens) = (
            SELECT s.total_usd, s.total_tokens
            FROM job_spend(r.task, r.ticket, r.estimate_usd, r.metered) AS s
        )
    WHERE r.project = of_project AND r.settled_at IS NULL AND r.until <= run_at;
    -- Jobs whose usage is recorded. An unknown cost is not zero, so its estimate stays here.
    DELETE FROM run_reservations AS r
    WHERE r.project = of_project AND r.settled_at IS NOT NULL AND EXISTS (
        SELECT FROM usage
        WHERE usage.task = r.task AND usage.ticket = r.ticket AND usage.cost_usd IS NOT NULL
    );
    SELECT s.total_usd AS usd, s.total_tokens AS tokens INTO earlier
    FROM job_spend(of_task, of_ticket, run_estimate, run_metered) AS s;
    -- The task's allowance already excludes the spend of its ended jobs.
    SELECT coalesce(sum(r.usd), 0) AS usd, coalesce(sum(r.tokens), 0)::bigint AS tokens INTO others
    FROM run_reservations AS r
    WHERE r.task = of_task AND r.ticket <> of_ticket AND r.settled_at IS NULL;
    budget_use := jsonb_build_object(
        'earlier_usd', earlier.usd::text,
        'earlier_tokens', earlier.tokens,
        'task_usd', others.usd::text,
        'task_tokens', others.tokens,
        'project', CASE
            WHEN has_project_budget
                THEN shared_budget_use(of_project, 'epoch'::timestamptz, of_task, of_ticket)
        END,
        'day', CASE
            WHEN has_day_budget THEN shared_budget_use(of_project, midnight, of_task, of_ticket)
        END
    );
    is_reserved := is_granted AND blocked_until IS NULL AND CASE
        WHEN expected IS NULL
            THEN NOT has_project_budget AND NOT has_day_budget
                AND earlier.usd = 0 AND earlier.tokens = 0 AND others.usd = 0 AND others.tokens = 0
        ELSE expected = budget_use
    END;
    IF is_reserved THEN
        INSERT INTO run_reservations
        (task, ticket, attempt, project, usd, tokens, estimate_usd, metered, reserved_at, until)
        VALUES (
            of_task, of_ticket, of_attempt, of_project, granted_usd, granted_tokens, run_estimate,
            run_metered, run_at, run_until
        )
        ON CONFLICT (task, ticket) DO UPDATE SET
            attempt = excluded.attempt, project = excluded.project, usd = excluded.usd,
            tokens = excluded.tokens, estimate_usd = excluded.estimate_usd,
            metered = excluded.metered, reserved_at = excluded.reserved_at,
            until = excluded.until, settled_at = NULL, spent_usd = NULL, spent_tokens = NULL;
    END IF;
END
$$;

-- Ends a run with its last log lines and model calls, and settles its reservation. Repeating it has no
-- effect. Returns false if there is no such run.
CREATE FUNCTION end_run(
    of_task uuid, of_ticket bigint, of_attempt bigint, new_lines jsonb, new_calls jsonb,
    last_line bigint, last_call bigint, run_session text, run_model text, run_usage jsonb,
    run_ended_at timestamptz, run_outcome text, run_reason text, run_transcript text
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    of_project uuid;
BEGIN
    UPDATE runs SET
        ended_at = run_ended_at,
        outcome = run_outcome,
        reason = run_reason,
        running = NULL,
        lines = greatest(runs.lines, last_line),
        calls = greatest(runs.calls, last_call),
        session = coalesce(run_session, runs.session),
        model = coalesce(run_model, runs.model),
        transcript = coalesce(run_transcript, runs.transcript),
        tokens_input = CASE WHEN u.told THEN u.tokens_input ELSE runs.tokens_input END,
        tokens_cached = CASE WHEN u.told THEN u.tokens_cached ELSE runs.tokens_cached END,
        tokens_output = CASE WHEN u.told THEN u.tokens_output ELSE runs.tokens_output END,
        cost_usd = CASE WHEN u.told THEN u.cost_usd ELSE runs.cost_usd END,
        metered = CASE WHEN u.told THEN u.metered ELSE runs.metered END
    FROM jsonb_to_record(run_usage) AS u (
        told boolean, tokens_input bigint, tokens_cached bigint, tokens_output bigint,
        cost_usd numeric, metered boolean
    )
    WHERE runs.task = of_task AND runs.ticket = of_ticket AND runs.attempt = of_attempt
    RETURNING runs.project INTO of_project;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO run_lines (task, ticket, attempt, sequence, project, at, kind, text, data)
    SELECT
        of_task, of_ticket, of_attempt, l.sequence, of_project, l.at, l.kind, l.text, l.data
    FROM jsonb_to_recordset(new_lines) AS l (
        sequence bigint, at timestamptz, kind text, text text, data jsonb
    )
    ON CONFLICT DO NOTHING;
    INSERT INTO model_calls
    (
        task, ticket, attempt, sequence, project, at, model, status, tokens_input, tokens_cached,
        tokens_output, cost_usd, first_byte_ms, took_ms, note
    )
    SELECT
        of_task, of_ticket, of_attempt, c.sequence, of_project, c.at, c.model, c.status,
        c.tokens_input, c.tokens_cached, c.tokens_output, c.cost_usd, c.first_byte_ms, c.took_ms,
        c.note
    FROM jsonb_to_recordset(new_calls) AS c (
        sequence bigint, at timestamptz, model text, status integer, tokens_input bigint,
        tokens_cached bigint, tokens_output bigint, cost_usd numeric, first_byte_ms bigint,
        took_ms bigint, note text
    )
    ON CONFLICT DO NOTHING;
    -- Sees the calls above.
    UPDATE run_reservations AS r SET
        settled_at = run_ended_at,
        (spent_usd, spent_tokens) = (
            SELECT s.total_usd, s.total_tokens
            FROM job_spend(r.task, r.ticket, r.estimate_usd, r.metered) AS s
        )
    WHERE r.task = of_task AND r.ticket = of_ticket AND r.attempt = of_attempt;
    PERFORM pg_notify('tamma_lines', of_task || ' ' || of_ticket || ' ' || of_attempt);
    RETURN true;
END
$$;

-- What a job needs to know before it starts: the task as it was submitted, its project, and the number
-- of the newest change of the knowledge that applies to it. In PL/pgSQL, because plans of SQL functions
-- are not cached.
CREATE FUNCTION job_facts(it tasks) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN jsonb_build_object(
        'task', jsonb_build_object(
            'id', it.id,
            'project', it.project,
            'title', it.title,
            'description', it.description,
            'type', it.type,
            'priority', it.priority,
            'acceptance_criteria', it.acceptance_criteria,
            'labels', it.labels,
            'depends_on', it.depends_on,
            'suggested_agent', it.suggested_agent,
            'issue_url', it.issue_url,
            'issue_number', it.issue_number,
            'metadata', it.metadata
        ),
        'project', (
            SELECT jsonb_build_object('name', projects.name, 'repository', projects.repository)
            FROM projects WHERE projects.id = it.project
        ),
        'knowledge_revision', greatest(
            (SELECT max(knowledge.revision) FROM knowledge WHERE knowledge.project = it.project),
            (SELECT max(knowledge.revision) FROM knowledge WHERE knowledge.project IS NULL),
            0
        )
    );
END
$$;
