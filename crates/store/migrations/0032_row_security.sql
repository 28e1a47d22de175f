-- no-transaction
-- squawk-ignore-file transaction-nesting

-- Row-level security: a connection that reads for people sees the rows of their organisations only.
--
-- Such a connection has the role `tamma_tenant`, which can read, and names its organisations in the
-- setting `tamma.organisations`. Without the setting, it sees nothing. The owner of the tables is not
-- restricted: workers and maintenance act for all organisations, and use cases check writes.
--
-- Each table is locked on its own and for a moment only, because requests are served meanwhile. So this is
-- not one transaction, and all of it can be repeated after an interruption.

BEGIN;

-- For all of this. Requests that come after a waiting statement wait as long.
SET lock_timeout = '2s';
SET statement_timeout = '60s';

-- Roles belong to the whole server, so the role can exist already. Where the owner cannot create roles,
-- its administrator does (docs/organisations.md).
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'tamma_tenant') THEN
        CREATE ROLE tamma_tenant NOLOGIN;
    END IF;
    -- Also for members: since PostgreSQL 16, whoever creates a role is one that cannot use it.
    GRANT tamma_tenant TO CURRENT_USER;
EXCEPTION
    -- Another database of the server is migrated at the same time.
    WHEN duplicate_object OR unique_violation THEN
        RAISE NOTICE 'the role tamma_tenant exists already';
    WHEN insufficient_privilege THEN
        RAISE NOTICE 'the role tamma_tenant cannot be created; see docs/organisations.md';
END
$$;

-- Organisations that the connection reads for.
CREATE OR REPLACE FUNCTION tenant_organisations() RETURNS uuid [] LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT coalesce(
        string_to_array(nullif(current_setting('tamma.organisations', true), ''), ',')::uuid [],
        '{}'
    )
$$;

-- Restricts reads of a table to the rows for which a condition holds, or to none if there is no condition.
-- Does not lock a table that is restricted already, so it can be repeated.
CREATE OR REPLACE FUNCTION restrict_reads(of_table text, condition text DEFAULT NULL)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    restricted regclass := of_table::regclass;
BEGIN
    IF condition IS NOT NULL AND NOT EXISTS (
        SELECT FROM pg_policy WHERE polrelid = restricted AND polname = 'tenant'
    ) THEN
        EXECUTE format('CREATE POLICY tenant ON %s FOR SELECT USING (%s)', restricted, condition);
    END IF;
    IF NOT (SELECT relrowsecurity FROM pg_class WHERE oid = restricted) THEN
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', restricted);
    END IF;
END
$$;

-- For tables with a project. The projects that the connection sees are read once for each statement.
CREATE OR REPLACE FUNCTION restrict_reads_by_project(of_table text) RETURNS void LANGUAGE sql AS $$
    SELECT restrict_reads(of_table, 'project = ANY (ARRAY(SELECT projects.id FROM projects))')
$$;

-- For tables of tasks, and of pipelines, whose agents run under their ID.
CREATE OR REPLACE FUNCTION restrict_reads_by_task(of_table text) RETURNS void LANGUAGE sql AS $$
    SELECT restrict_reads(of_table, format(
        'EXISTS (SELECT FROM tasks WHERE tasks.id = %1$I.task)
         OR EXISTS (SELECT FROM pipelines WHERE pipelines.id = %1$I.task)', of_table
    ))
$$;

-- Partitions whose reads are not restricted yet.
CREATE OR REPLACE FUNCTION unrestricted_partitions() RETURNS SETOF text LANGUAGE sql STABLE AS $$
    SELECT pg_class.oid::regclass::text FROM pg_class
    INNER JOIN pg_inherits ON pg_inherits.inhrelid = pg_class.oid
    WHERE pg_inherits.inhparent IN (
        'entries'::regclass, 'run_lines'::regclass, 'model_calls'::regclass
    )
    AND NOT pg_class.relrowsecurity
    ORDER BY pg_class.oid
$$;

-- Restricts reads of partitions. Waits for the first one, and then holds its lock, so it skips others that
-- are in use: a transaction that waits while it holds a lock can end in a deadlock.
CREATE OR REPLACE FUNCTION restrict_partitions() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    name text;
    holds_lock boolean := false;
BEGIN
    FOR name IN SELECT unrestricted_partitions() LOOP
        BEGIN
            IF holds_lock THEN
                EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE NOWAIT', name);
            END IF;
            PERFORM restrict_reads(name);
            holds_lock := true;
        EXCEPTION WHEN lock_not_available THEN
            IF NOT holds_lock THEN
                RAISE;
            END IF;
        END;
    END LOOP;
END
$$;

-- Returns a text by its hash. Texts belong to no organisation; the hash of one is known to those who
-- read a row that refers to it, and nobody else can find it.
CREATE OR REPLACE FUNCTION text_content(of_hash text) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT texts.content FROM texts WHERE texts.hash = of_hash
$$;

-- Lets the role read the tables with a policy, and no others.
CREATE OR REPLACE FUNCTION grant_tenant_reads() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    name text;
BEGIN
    FOR name IN
        SELECT pg_policy.polrelid::regclass::text FROM pg_policy
        WHERE pg_policy.polname = 'tenant'
    LOOP
        EXECUTE format('GRANT SELECT ON %s TO tamma_tenant', name);
    END LOOP;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO tamma_tenant', current_schema());
END
$$;

-- As before, and a new partition cannot be read directly.
CREATE OR REPLACE FUNCTION ensure_partitions_of(parent text, first date, last date)
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
            -- Nobody adds rows between the copy and the deletion.
            EXECUTE format('LOCK TABLE %I IN SHARE ROW EXCLUSIVE MODE', parent || '_other');
            -- With the primary key, by which deletions find their copies.
            EXECUTE format(
                'CREATE TABLE %I (
                     LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES
                 )', partition, parent
            );
            EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', partition);
            EXECUTE format(
                'INSERT INTO %I SELECT * FROM %I WHERE at >= %L AND at < %L',
                partition, parent || '_other', lower_end, upper_end
            );
            EXECUTE format(
                'DELETE FROM %I WHERE at >= %L AND at < %L',
                parent || '_other', lower_end, upper_end
            );
            EXECUTE format(
                'ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                parent, partition, lower_end, upper_end
            );
            IF parent = 'entries' THEN
                EXECUTE format(
                    'CREATE TRIGGER entries_are_not_truncated BEFORE TRUNCATE ON %I
                     FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewrite()', partition
                );
            END IF;
            made := made + 1;
        END IF;
        month := (month + interval '1 month')::date;
    END LOOP;
    RETURN made;
END
$$;

COMMIT;

-- Each table in a transaction of its own: while it waits for one table, it holds no other.
BEGIN;
SELECT restrict_reads('projects', 'organisation = ANY ((SELECT tenant_organisations())::uuid [])');
COMMIT;

BEGIN; SELECT restrict_reads_by_project('access_changes'); COMMIT;
BEGIN; SELECT restrict_reads_by_project('aftercare_findings'); COMMIT;
BEGIN; SELECT restrict_reads_by_project('alerts'); COMMIT;
BEGIN; SELECT restrict_reads_by_project('approvals'); COMMIT;
BEGIN; SELECT restrict_reads_by_project('baselines'); COMMIT;
BEGIN; SELECT restrict_reads_by_project('entries'); COMMIT;
BEGIN; SELECT restrict_reads_by_project('faults'); COMMIT;
BEGIN; SELECT restrict_reads_by_project('issue_tasks'); COMMIT;
BEGIN; SELECT restrict_reads_by_project('iterations'); COMMIT;
BEGIN; SELECT restrict_reads_by_project('knowledge_matches'); COMMIT;
BEGIN; SELECT restrict_reads_by_project('merge_queue_entries'); COMMIT;
BEGIN; SELECT restrict_reads_by_project('merge_queues'); COMMIT;
BEGIN; SELECT restrict_reads_by_project('model_calls'); COMMIT;
BEGIN; SELECT restrict_reads_by_project('outward_effect'); COMMIT;
BEGIN; SELECT restrict_reads_by_project('pipelines'); COMMIT;
BEGIN; SELECT restrict_reads_by_project('pull_requests'); COMMIT;
BEGIN; SELECT restrict_reads_by_project('run_lines'); COMMIT;
BEGIN; SELECT restrict_reads_by_project('run_reservations'); COMMIT;
BEGIN; SELECT restrict_reads_by_project('runs'); COMMIT;
BEGIN; SELECT restrict_reads_by_project('tasks'); COMMIT;
BEGIN; SELECT restrict_reads_by_project('usage'); COMMIT;

BEGIN; SELECT restrict_reads_by_task('answers'); COMMIT;
BEGIN; SELECT restrict_reads_by_task('checks'); COMMIT;
BEGIN; SELECT restrict_reads_by_task('comment_drafts'); COMMIT;
BEGIN; SELECT restrict_reads_by_task('history_heads'); COMMIT;
BEGIN; SELECT restrict_reads_by_task('inline_jobs'); COMMIT;
BEGIN; SELECT restrict_reads_by_task('line_comments'); COMMIT;
BEGIN; SELECT restrict_reads_by_task('plans'); COMMIT;
BEGIN; SELECT restrict_reads_by_task('task_workflows'); COMMIT;
BEGIN; SELECT restrict_reads_by_task('viewed_files'); COMMIT;

-- Entries without a project apply to the whole installation.
BEGIN;
SELECT restrict_reads(
    'knowledge', 'project IS NULL OR project = ANY (ARRAY(SELECT projects.id FROM projects))'
);
COMMIT;

BEGIN;
SELECT restrict_reads(
    'knowledge_changes', 'EXISTS (SELECT FROM knowledge WHERE knowledge.id = knowledge_changes.entry)'
);
COMMIT;

BEGIN;
SELECT restrict_reads(
    'knowledge_vectors', 'EXISTS (SELECT FROM knowledge WHERE knowledge.id = knowledge_vectors.entry)'
);
COMMIT;

BEGIN;
SELECT restrict_reads(
    'pipeline_phases', 'EXISTS (SELECT FROM pipelines WHERE pipelines.id = pipeline_phases.pipeline)'
);
COMMIT;

BEGIN;
SELECT restrict_reads(
    'deliveries', 'EXISTS (SELECT FROM alerts WHERE alerts.id = deliveries.alert)'
);
COMMIT;

BEGIN;
SELECT restrict_reads(
    'delivery_attempts', 'EXISTS (SELECT FROM deliveries WHERE deliveries.id = delivery_attempts.delivery)'
);
COMMIT;

-- Nobody but the owner reads these: accounts and what people sign in with, what they have said to Tamma,
-- texts, which are found by their hash only, and records of the whole installation.
BEGIN; SELECT restrict_reads('access_tokens'); COMMIT;
BEGIN; SELECT restrict_reads('accounts'); COMMIT;
BEGIN; SELECT restrict_reads('audit_entries'); COMMIT;
BEGIN; SELECT restrict_reads('audit_exports'); COMMIT;
BEGIN; SELECT restrict_reads('audit_head'); COMMIT;
BEGIN; SELECT restrict_reads('audit_pending'); COMMIT;
BEGIN; SELECT restrict_reads('conversations'); COMMIT;
BEGIN; SELECT restrict_reads('forge_cursors'); COMMIT;
BEGIN; SELECT restrict_reads('holds'); COMMIT;
BEGIN; SELECT restrict_reads('identities'); COMMIT;
BEGIN; SELECT restrict_reads('leases'); COMMIT;
BEGIN; SELECT restrict_reads('logins'); COMMIT;
BEGIN; SELECT restrict_reads('organisation_access_changes'); COMMIT;
BEGIN; SELECT restrict_reads('organisations'); COMMIT;
BEGIN; SELECT restrict_reads('outbox'); COMMIT;
BEGIN; SELECT restrict_reads('people'); COMMIT;
BEGIN; SELECT restrict_reads('run_queue'); COMMIT;
BEGIN; SELECT restrict_reads('saved_views'); COMMIT;
BEGIN; SELECT restrict_reads('sessions'); COMMIT;
BEGIN; SELECT restrict_reads('sign_in_flows'); COMMIT;
BEGIN; SELECT restrict_reads('texts'); COMMIT;
BEGIN; SELECT restrict_reads('webhook_deliveries'); COMMIT;
BEGIN; SELECT restrict_reads('workers'); COMMIT;

-- Partitions are read through their tables, never directly.
BEGIN; SELECT restrict_partitions(); COMMIT;
BEGIN; SELECT restrict_partitions(); COMMIT;
BEGIN; SELECT restrict_partitions(); COMMIT;
BEGIN; SELECT restrict_partitions(); COMMIT;
BEGIN; SELECT restrict_partitions(); COMMIT;
BEGIN; SELECT restrict_partitions(); COMMIT;

BEGIN;

-- What is left is in use; `tamma migrate` tries again.
DO $$
BEGIN
    IF EXISTS (SELECT FROM unrestricted_partitions()) THEN
        RAISE lock_not_available USING MESSAGE = 'partitions are in use';
    END IF;
END
$$;

COMMIT;

BEGIN;

-- Only where the owner can use the role: it may be that of another installation on the same server.
DO $$
BEGIN
    IF EXISTS (
        SELECT FROM pg_roles
        WHERE rolname = 'tamma_tenant' AND pg_has_role(current_user, oid, 'MEMBER')
    ) THEN
        PERFORM grant_tenant_reads();
    END IF;
END
$$;

COMMIT;

RESET lock_timeout;
RESET statement_timeout;
