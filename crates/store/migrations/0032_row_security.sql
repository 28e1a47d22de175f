-- Row-level security: a connection that reads for people sees the rows of their organisations only.
--
-- Such a connection has the role `tamma_tenant`, which can read, and names its organisations in the
-- setting `tamma.organisations`. Without the setting, it sees nothing. The owner of the tables is not
-- restricted: workers and maintenance act for all organisations, and use cases check writes.

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '60s';

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
CREATE FUNCTION tenant_organisations() RETURNS uuid [] LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT coalesce(
        string_to_array(nullif(current_setting('tamma.organisations', true), ''), ',')::uuid [],
        '{}'
    )
$$;

CREATE POLICY tenant ON projects FOR SELECT
USING (organisation = ANY ((SELECT tenant_organisations())::uuid []));

ALTER TABLE projects ENABLE ROW LEVEL SECURITY;

-- Tables with a project. The projects that the connection sees are read once for each statement.
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY[
        'access_changes', 'aftercare_findings', 'alerts', 'approvals', 'baselines', 'entries',
        'faults', 'issue_tasks', 'iterations', 'knowledge_matches', 'merge_queue_entries',
        'merge_queues', 'model_calls', 'outward_effect', 'pipelines', 'pull_requests', 'run_lines',
        'run_reservations', 'runs', 'tasks', 'usage'
    ] LOOP
        EXECUTE format(
            'CREATE POLICY tenant ON %I FOR SELECT
             USING (project = ANY (ARRAY(SELECT projects.id FROM projects)))', name
        );
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
    END LOOP;
    -- Tables of tasks, and of pipelines, whose agents run under their ID.
    FOREACH name IN ARRAY ARRAY[
        'answers', 'checks', 'comment_drafts', 'history_heads', 'inline_jobs', 'line_comments', 'plans',
        'task_workflows', 'viewed_files'
    ] LOOP
        EXECUTE format(
            'CREATE POLICY tenant ON %1$I FOR SELECT USING (
                 EXISTS (SELECT FROM tasks WHERE tasks.id = %1$I.task)
                 OR EXISTS (SELECT FROM pipelines WHERE pipelines.id = %1$I.task)
             )', name
        );
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
    END LOOP;
    -- Nobody but the owner reads these: accounts and what people sign in with, what they have said to
    -- Tamma, texts, which are found by their hash only, and records of the whole installation.
    FOREACH name IN ARRAY ARRAY[
        'access_tokens', 'accounts', 'audit_entries', 'audit_exports', 'audit_head', 'audit_pending',
        'conversations', 'forge_cursors', 'holds', 'identities', 'leases', 'logins',
        'organisation_access_changes', 'organisations', 'outbox', 'people', 'run_queue', 'saved_views',
        'sessions', 'sign_in_flows', 'texts', 'webhook_deliveries', 'workers'
    ] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
    END LOOP;
    -- Partitions are read through their tables, never directly.
    FOR name IN SELECT inhrelid::regclass::text FROM pg_inherits
        WHERE inhparent IN (
            'entries'::regclass, 'run_lines'::regclass, 'model_calls'::regclass
        )
    LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', name);
    END LOOP;
END
$$;

-- Entries without a project apply to the whole installation.
CREATE POLICY tenant ON knowledge FOR SELECT
USING (project IS NULL OR project = ANY (ARRAY(SELECT projects.id FROM projects)));

ALTER TABLE knowledge ENABLE ROW LEVEL SECURITY;

CREATE POLICY tenant ON knowledge_changes FOR SELECT
USING (EXISTS (SELECT FROM knowledge WHERE knowledge.id = knowledge_changes.entry));

ALTER TABLE knowledge_changes ENABLE ROW LEVEL SECURITY;

CREATE POLICY tenant ON knowledge_vectors FOR SELECT
USING (EXISTS (SELECT FROM knowledge WHERE knowledge.id = knowledge_vectors.entry));

ALTER TABLE knowledge_vectors ENABLE ROW LEVEL SECURITY;

CREATE POLICY tenant ON pipeline_phases FOR SELECT
USING (EXISTS (SELECT FROM pipelines WHERE pipelines.id = pipeline_phases.pipeline));

ALTER TABLE pipeline_phases ENABLE ROW LEVEL SECURITY;

CREATE POLICY tenant ON deliveries FOR SELECT
USING (EXISTS (SELECT FROM alerts WHERE alerts.id = deliveries.alert));

ALTER TABLE deliveries ENABLE ROW LEVEL SECURITY;

CREATE POLICY tenant ON delivery_attempts FOR SELECT
USING (EXISTS (SELECT FROM deliveries WHERE deliveries.id = delivery_attempts.delivery));

ALTER TABLE delivery_attempts ENABLE ROW LEVEL SECURITY;

-- Returns a text by its hash. Texts belong to no organisation; the hash of one is known to those who
-- read a row that refers to it, and nobody else can find it.
CREATE FUNCTION text_content(of_hash text) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT texts.content FROM texts WHERE texts.hash = of_hash
$$;

-- Lets the role read the tables with a policy, and no others.
CREATE FUNCTION grant_tenant_reads() RETURNS void LANGUAGE plpgsql AS $$
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
