-- What Tamma remembers of projects and tasks, and the append-only log.
--
-- Words are spelt as the core spells them, in text and not in enum types: an older program must be
-- able to store what a newer one wrote, and a new word needs no migration. Large tables have
-- `project` in them, so that they can be divided by it.

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '60s';

CREATE TABLE projects (
    id uuid PRIMARY KEY,
    name text NOT NULL,
    -- Where its repository is: a path or an address.
    repository text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT projects_name_key UNIQUE (name)
);

CREATE TABLE tasks (
    -- Time-ordered (version 7), so that the newest come last in every index.
    id uuid PRIMARY KEY,
    project uuid NOT NULL REFERENCES projects (id),
    created_at timestamptz NOT NULL,

    -- What is wanted, in its author's words.
    title text NOT NULL,
    description text NOT NULL,
    type text NOT NULL,
    acceptance_criteria jsonb NOT NULL,
    labels text [] NOT NULL,
    depends_on uuid [] NOT NULL,
    suggested_agent text,
    issue_url text,
    metadata jsonb NOT NULL,
    words tsvector NOT NULL GENERATED ALWAYS AS (
        to_tsvector('simple', title || ' ' || description)
    ) STORED,

    -- The machine, whole, and how many events it has taken. A writer must know the number before
    -- its own, which is what makes every step written once.
    revision bigint NOT NULL,
    memory jsonb NOT NULL,

    -- The machine as lists show it. Everything here follows from the memory and the rules.
    entries bigint NOT NULL,
    priority text NOT NULL,
    state text NOT NULL,
    phase text NOT NULL,
    live boolean NOT NULL,
    paused boolean NOT NULL,
    since timestamptz NOT NULL,
    risk text,
    iterations integer NOT NULL,
    retries integer NOT NULL,
    councils integer NOT NULL,
    spent_usd numeric NOT NULL,
    spent_tokens bigint NOT NULL,
    spend_estimated boolean NOT NULL,
    question jsonb,
    asked_at timestamptz,
    next jsonb,
    wake_at timestamptz,
    -- When it will have been where it is for longer than expected.
    due_at timestamptz,
    -- How many entries of its log say that something failed.
    failures integer NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
)
-- A row is rewritten with every step; room on its page keeps the new one beside the old.
WITH (fillfactor = 70);

CREATE INDEX tasks_by_project ON tasks (project, id);
CREATE INDEX tasks_by_project_and_state ON tasks (project, state, id);
CREATE INDEX tasks_by_state ON tasks (state, id);
CREATE INDEX tasks_asking ON tasks (asked_at, id) WHERE asked_at IS NOT NULL;
CREATE INDEX tasks_due ON tasks (due_at, id) WHERE due_at IS NOT NULL;
CREATE INDEX tasks_failing ON tasks (failures, id) WHERE live AND failures >= 3;
CREATE INDEX tasks_by_change ON tasks (updated_at);
CREATE INDEX tasks_by_word ON tasks USING gin (words);

CREATE TABLE plans (
    task uuid NOT NULL REFERENCES tasks (id),
    version integer NOT NULL,
    hash text NOT NULL,
    -- To the letter: what people approve is the hash of it.
    content json NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (task, version)
);

CREATE INDEX plans_by_hash ON plans (task, hash);

-- Every decision about a plan. The number is that of the entry that says so.
CREATE TABLE approvals (
    task uuid NOT NULL,
    sequence bigint NOT NULL,
    project uuid NOT NULL,
    at timestamptz NOT NULL,
    -- approve, reject, changes, override or auto.
    decision text NOT NULL,
    -- Nobody, where Tamma itself decided.
    decided_by text,
    reason text,
    plan text,
    base text,
    policy text,
    risk text,
    PRIMARY KEY (task, sequence)
);

CREATE INDEX approvals_by_project ON approvals (project, at);

CREATE TABLE iterations (
    task uuid NOT NULL,
    number integer NOT NULL,
    project uuid NOT NULL,
    tier text,
    engine text,
    plan text,
    started_at timestamptz,
    commit text,
    finished_at timestamptz,
    -- engine_failed, gates_failed, review_failed or passed; nothing while it is not known.
    outcome text,
    score integer,
    fingerprint jsonb,
    judged_at timestamptz,
    PRIMARY KEY (task, number)
);

CREATE TABLE alerts (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task uuid NOT NULL,
    project uuid NOT NULL,
    -- The number of the question, if it asks one.
    question integer,
    kind text NOT NULL,
    severity text NOT NULL,
    cause jsonb NOT NULL,
    answers text [] NOT NULL,
    at timestamptz NOT NULL,
    reminders integer NOT NULL DEFAULT 0,
    acknowledged_by text,
    acknowledged_at timestamptz,
    settled_at timestamptz
);

CREATE UNIQUE INDEX alerts_by_question ON alerts (task, question) WHERE question IS NOT NULL;
CREATE INDEX alerts_by_task ON alerts (task, id);
CREATE INDEX alerts_by_project ON alerts (project, id);

CREATE TABLE usage (
    task uuid NOT NULL,
    ticket bigint NOT NULL,
    project uuid NOT NULL,
    job text NOT NULL,
    at timestamptz NOT NULL,
    tokens_input bigint NOT NULL,
    tokens_cached bigint NOT NULL,
    tokens_output bigint NOT NULL,
    -- Nothing where nobody could tell, which is not zero.
    cost_usd numeric,
    PRIMARY KEY (task, ticket)
);

CREATE INDEX usage_by_project ON usage (project, at);

-- The log. Rows are added and never changed. That a number is there once is kept by the row of the
-- task, which counts them: a key of a partitioned table cannot leave out the time.
CREATE TABLE entries (
    task uuid NOT NULL,
    sequence bigint NOT NULL,
    project uuid NOT NULL,
    -- When it happened, and the nanoseconds that the type of the column has no room for.
    at timestamptz NOT NULL,
    at_nanos smallint NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    format smallint NOT NULL,
    name text NOT NULL,
    "from" text NOT NULL,
    "to" text NOT NULL,
    "on" text,
    actor jsonb NOT NULL,
    reason text,
    data jsonb,
    PRIMARY KEY (task, sequence, at)
) PARTITION BY RANGE (at);

CREATE INDEX entries_by_project ON entries (project, at);

-- What no month was made for. It stays empty while months are made ahead.
CREATE TABLE entries_other PARTITION OF entries DEFAULT;

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the log is append-only' USING ERRCODE = 'restrict_violation';
END
$$;

CREATE TRIGGER entries_are_kept BEFORE UPDATE ON entries
FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- Makes a partition for every month from the first day to the last, where there is none yet. What
-- was kept among the others moves in. Returns how many were made.
CREATE FUNCTION ensure_partitions(first date, last date) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    month date := date_trunc('month', first)::date;
    upper_end date;
    partition text;
    made integer := 0;
BEGIN
    -- One at a time: two programs that start together want the same months.
    PERFORM pg_advisory_xact_lock(hashtext('tamma.ensure_partitions'));
    WHILE month <= last LOOP
        upper_end := (month + interval '1 month')::date;
        partition := 'entries_' || to_char(month, 'YYYY_MM');
        IF to_regclass(partition) IS NULL THEN
            EXECUTE format(
                'CREATE TABLE %I (LIKE entries INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', partition
            );
            EXECUTE format(
                'WITH moved AS (DELETE FROM entries_other WHERE at >= %L AND at < %L RETURNING *)
                 INSERT INTO %I SELECT * FROM moved',
                month::timestamp AT TIME ZONE 'UTC', upper_end::timestamp AT TIME ZONE 'UTC',
                partition
            );
            EXECUTE format(
                'ALTER TABLE entries ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                partition,
                month::timestamp AT TIME ZONE 'UTC', upper_end::timestamp AT TIME ZONE 'UTC'
            );
            made := made + 1;
        END IF;
        month := upper_end;
    END LOOP;
    RETURN made;
END
$$;
