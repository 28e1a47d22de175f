-- Runs of agents: what each was, what it said and did line by line, and which models it called.
--
-- The lines are for people who look on or look back, and are many; whole months of them are removed
-- when they are old. What stays is the run with its sums, every model call, and the transcript,
-- which is not here but among the objects.

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '60s';

CREATE TABLE runs (
    task uuid NOT NULL,
    ticket bigint NOT NULL,
    -- How often the job has been taken up.
    attempt bigint NOT NULL,
    project uuid NOT NULL,
    agent text NOT NULL,
    model text,
    tier text,
    mode text NOT NULL,
    -- The agent's name for its session.
    session text,
    started_at timestamptz NOT NULL,
    ended_at timestamptz,
    -- finished, crashed, timed_out, cancelled, unavailable, quota, over_budget or asked; nothing
    -- while it runs.
    outcome text,
    reason text,
    -- Nothing where nobody has said, which is not zero.
    tokens_input bigint,
    tokens_cached bigint,
    tokens_output bigint,
    cost_usd numeric,
    -- Whether we have counted that ourselves, or the agent says so.
    metered boolean NOT NULL,
    -- Where the transcript is among the objects.
    transcript text,
    -- The numbers of the last line and the last model call.
    lines bigint NOT NULL DEFAULT 0,
    calls bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (task, ticket, attempt)
)
-- A row is rewritten a few times a second while its run lives.
WITH (fillfactor = 70);

CREATE INDEX runs_by_project ON runs (project, started_at);

CREATE TABLE run_lines (
    task uuid NOT NULL,
    ticket bigint NOT NULL,
    attempt bigint NOT NULL,
    sequence bigint NOT NULL,
    project uuid NOT NULL,
    at timestamptz NOT NULL,
    -- said, thought, tool, plan, progress, asked, refused, model_call or note.
    kind text NOT NULL,
    text text NOT NULL,
    data jsonb,
    -- The same line that is sent again has the same time.
    PRIMARY KEY (task, ticket, attempt, sequence, at)
) PARTITION BY RANGE (at);

CREATE TABLE run_lines_other PARTITION OF run_lines DEFAULT;

CREATE TABLE model_calls (
    task uuid NOT NULL,
    ticket bigint NOT NULL,
    attempt bigint NOT NULL,
    sequence bigint NOT NULL,
    project uuid NOT NULL,
    at timestamptz NOT NULL,
    model text NOT NULL,
    status integer NOT NULL,
    tokens_input bigint,
    tokens_cached bigint,
    tokens_output bigint,
    cost_usd numeric,
    first_byte_ms bigint,
    took_ms bigint NOT NULL,
    note text,
    PRIMARY KEY (task, ticket, attempt, sequence, at)
) PARTITION BY RANGE (at);

CREATE INDEX model_calls_by_project ON model_calls (project, at);

CREATE TABLE model_calls_other PARTITION OF model_calls DEFAULT;

-- Makes a partition of one table for every month from the first day to the last, where there is
-- none yet. What was kept among the others moves in. Returns how many were made.
CREATE FUNCTION ensure_partitions_of(parent text, first date, last date)
RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    month date := date_trunc('month', first)::date;
    lower_end timestamptz;
    upper_end timestamptz;
    partition text;
    made integer := 0;
BEGIN
    WHILE month <= last LOOP
        lower_end := month::timestamp AT TIME ZONE 'UTC';
        upper_end := (month + interval '1 month') AT TIME ZONE 'UTC';
        partition := parent || '_' || to_char(month, 'YYYY_MM');
        IF to_regclass(partition) IS NULL THEN
            EXECUTE format(
                'CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)',
                partition, parent
            );
            EXECUTE format(
                'WITH moved AS (DELETE FROM %I WHERE at >= %L AND at < %L RETURNING *)
                 INSERT INTO %I SELECT * FROM moved',
                parent || '_other', lower_end, upper_end, partition
            );
            EXECUTE format(
                'ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                parent, partition, lower_end, upper_end
            );
            made := made + 1;
        END IF;
        month := (month + interval '1 month')::date;
    END LOOP;
    RETURN made;
END
$$;

-- The same for every table that is divided by month.
CREATE OR REPLACE FUNCTION ensure_partitions(first date, last date)
RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    -- One at a time: two programs that start together want the same months.
    PERFORM pg_advisory_xact_lock(hashtext('tamma.ensure_partitions'));
    RETURN ensure_partitions_of('entries', first, last)
        + ensure_partitions_of('run_lines', first, last)
        + ensure_partitions_of('model_calls', first, last);
END
$$;

-- Removes the lines of every month that was over before a moment, and what is as old among the
-- others. Returns how many months were removed.
CREATE FUNCTION forget_run_lines(before timestamptz) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    partition text;
    month date;
    removed integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('tamma.ensure_partitions'));
    FOR partition IN
        SELECT c.relname FROM pg_inherits AS i
        INNER JOIN pg_class AS c ON i.inhrelid = c.oid
        WHERE i.inhparent = 'run_lines'::regclass AND c.relname ~ '^run_lines_\d{4}_\d{2}$'
        ORDER BY c.relname
    LOOP
        month := to_date(right(partition, 7), 'YYYY_MM');
        IF (month + interval '1 month') AT TIME ZONE 'UTC' <= before THEN
            EXECUTE format('DROP TABLE %I', partition);
            removed := removed + 1;
        END IF;
    END LOOP;
    DELETE FROM run_lines_other WHERE at < before;
    RETURN removed;
END
$$;
