-- The history and other records of who did what are insert-only, and the entries of each task form a
-- hash chain, so that a change behind Tamma's back is found (`tamma audit verify`).

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '60s';

-- How the author of an event was authenticated. Nothing for Tamma itself, and before this migration.
ALTER TABLE entries ADD COLUMN auth jsonb;

-- SHA-256 of the entry and of the hash before it. Nothing before this migration.
ALTER TABLE entries ADD COLUMN hash bytea;

-- End of each task's chain. Without it, nobody could tell that the last entries are gone.
CREATE TABLE history_heads (
    task uuid PRIMARY KEY,
    -- The first entry of the chain. Those before it were written before this migration.
    first_entry bigint NOT NULL,
    -- The last entry, and its hash.
    entries bigint NOT NULL,
    hash bytea NOT NULL
)
-- A row is rewritten with every entry; room on its page keeps the new one beside the old.
WITH (fillfactor = 70);

-- Hash of an entry: SHA-256 of a JSON object with all of its columns and the hash before it. The
-- text of jsonb is canonical: keys in a fixed order, no duplicates, numbers as they were written.
CREATE FUNCTION entry_hash(
    previous bytea, task uuid, sequence bigint, project uuid, at timestamptz, at_nanos smallint,
    recorded_at timestamptz, format smallint, name text, state_from text, state_to text,
    trigger_name text, actor jsonb, auth jsonb, reason text, data jsonb
) RETURNS bytea LANGUAGE sql STABLE AS $$
    SELECT sha256(convert_to(jsonb_build_object(
        'previous', encode(previous, 'hex'),
        'task', task,
        'sequence', sequence,
        'project', project,
        -- Independent of the session's time zone.
        'at', to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US'),
        'at_nanos', at_nanos,
        'recorded_at', to_char(recorded_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US'),
        'format', format,
        'name', name,
        'from', state_from,
        'to', state_to,
        'on', trigger_name,
        'actor', actor,
        'auth', auth,
        'reason', reason,
        'data', data
    )::text, 'UTF8'))
$$;

-- Adds an entry to the chain of its task. It runs in the database, so that older programs that share
-- it during an upgrade write chained entries, too.
CREATE FUNCTION chain_entry() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    head history_heads%ROWTYPE;
BEGIN
    SELECT * INTO head FROM history_heads WHERE history_heads.task = NEW.task FOR UPDATE;
    IF head.entries IS NOT NULL AND NEW.sequence <> head.entries + 1 THEN
        RAISE EXCEPTION 'entry % does not follow entry % of task %',
            NEW.sequence, head.entries, NEW.task USING ERRCODE = 'restrict_violation';
    END IF;
    NEW.hash := entry_hash(
        head.hash, NEW.task, NEW.sequence, NEW.project, NEW.at, NEW.at_nanos, NEW.recorded_at,
        NEW.format, NEW.name, NEW."from", NEW."to", NEW."on", NEW.actor, NEW.auth, NEW.reason,
        NEW.data
    );
    IF head.entries IS NULL THEN
        INSERT INTO history_heads (task, first_entry, entries, hash)
        VALUES (NEW.task, NEW.sequence, NEW.sequence, NEW.hash);
    ELSE
        UPDATE history_heads SET entries = NEW.sequence, hash = NEW.hash
        WHERE history_heads.task = NEW.task;
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER entries_are_chained BEFORE INSERT ON entries
FOR EACH ROW EXECUTE FUNCTION chain_entry();

CREATE FUNCTION refuse_rewrite() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rows of % are never changed or deleted', TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END
$$;

-- An entry can leave the default partition if its month has a copy, and not otherwise.
CREATE FUNCTION refuse_entry_deletion() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    partition text := 'entries_' || to_char(OLD.at AT TIME ZONE 'UTC', 'YYYY_MM');
    is_copied boolean := false;
BEGIN
    IF TG_TABLE_NAME = 'entries_other' AND to_regclass(partition) IS NOT NULL THEN
        EXECUTE format(
            'SELECT EXISTS (
                 SELECT FROM %I AS copy
                 WHERE copy.task = $1 AND copy.sequence = $2 AND to_jsonb(copy) = $3
             )', partition
        ) INTO is_copied USING OLD.task, OLD.sequence, to_jsonb(OLD);
    END IF;
    IF is_copied THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'rows of % are never changed or deleted', TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END
$$;

CREATE TRIGGER entries_stay BEFORE DELETE ON entries
FOR EACH ROW EXECUTE FUNCTION refuse_entry_deletion();

-- Triggers for TRUNCATE are not inherited: each partition has its own.
CREATE TRIGGER entries_are_not_truncated BEFORE TRUNCATE ON entries
FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewrite();

DO $$
DECLARE
    partition regclass;
BEGIN
    FOR partition IN SELECT inhrelid FROM pg_inherits WHERE inhparent = 'entries'::regclass LOOP
        EXECUTE format(
            'CREATE TRIGGER entries_are_not_truncated BEFORE TRUNCATE ON %s
             FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewrite()', partition
        );
    END LOOP;
END
$$;

-- The end of a chain changes only when an entry is added.
CREATE FUNCTION refuse_head_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND pg_trigger_depth() > 1 THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'rows of % change with the history only', TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END
$$;

CREATE TRIGGER history_heads_follow BEFORE UPDATE OR DELETE ON history_heads
FOR EACH ROW EXECUTE FUNCTION refuse_head_change();

CREATE TRIGGER history_heads_stay BEFORE TRUNCATE ON history_heads
FOR EACH STATEMENT EXECUTE FUNCTION refuse_head_change();

-- Decisions about plans, the plans themselves, and changes of the knowledge base.
CREATE TRIGGER approvals_are_kept BEFORE UPDATE OR DELETE ON approvals
FOR EACH ROW EXECUTE FUNCTION refuse_rewrite();

CREATE TRIGGER approvals_stay BEFORE TRUNCATE ON approvals
FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewrite();

CREATE TRIGGER plans_are_kept BEFORE UPDATE OR DELETE ON plans
FOR EACH ROW EXECUTE FUNCTION refuse_rewrite();

CREATE TRIGGER plans_stay BEFORE TRUNCATE ON plans
FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewrite();

CREATE TRIGGER knowledge_changes_are_kept BEFORE UPDATE OR DELETE ON knowledge_changes
FOR EACH ROW EXECUTE FUNCTION refuse_rewrite();

CREATE TRIGGER knowledge_changes_stay BEFORE TRUNCATE ON knowledge_changes
FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewrite();

-- A token is revoked once; nothing else of it changes.
CREATE FUNCTION refuse_token_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF
        TG_OP = 'UPDATE' AND OLD.revoked_at IS NULL AND NEW.revoked_at IS NOT NULL
        AND (NEW.id, NEW.name, NEW.hash, NEW.added_by, NEW.added_at)
        = (OLD.id, OLD.name, OLD.hash, OLD.added_by, OLD.added_at)
    THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'rows of % can be revoked once, and not changed or deleted', TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END
$$;

CREATE TRIGGER people_are_kept BEFORE UPDATE OR DELETE ON people
FOR EACH ROW EXECUTE FUNCTION refuse_token_change();

CREATE TRIGGER people_stay BEFORE TRUNCATE ON people
FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewrite();

-- As before, but rows are copied before they leave the default partition, and a new month of the
-- history cannot be truncated.
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
