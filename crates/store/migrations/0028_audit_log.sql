-- Audit log: who asked for what, how they were authenticated, from where, and under which policy. An
-- entry is recorded before anything is done for the request, completed with its result, and then
-- appended to one hash chain by a single writer. Requests do not wait for each other.

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '60s';

-- Entries that are not in the chain yet.
CREATE TABLE audit_pending (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    request jsonb NOT NULL CHECK (jsonb_typeof(request) = 'object'),
    -- Nothing until the request has ended.
    outcome jsonb
);

-- The chain. `content` is the exact text that was hashed.
CREATE TABLE audit_entries (
    position bigint PRIMARY KEY,
    previous text NOT NULL,
    hash text NOT NULL,
    content text NOT NULL,
    -- ID that the entry had in `audit_pending`. Each one is appended once.
    pending_id bigint GENERATED ALWAYS AS ((content::jsonb ->> 'id')::bigint) STORED UNIQUE
);

-- End of the chain. Without it, nobody could tell that the last entries are gone.
CREATE TABLE audit_head (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    position bigint NOT NULL,
    hash text NOT NULL
)
-- The row is rewritten with every entry; room on its page keeps the new one beside the old.
WITH (fillfactor = 20);

INSERT INTO audit_head (position, hash)
VALUES (0, encode(sha256(convert_to('tamma audit log', 'UTF8')), 'hex'));

-- Last entry that each receiver outside has confirmed.
CREATE TABLE audit_exports (
    receiver text PRIMARY KEY,
    position bigint NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Accepts an entry only at the end of the chain.
CREATE FUNCTION append_audit_entry() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    head audit_head%ROWTYPE;
BEGIN
    SELECT * INTO STRICT head FROM audit_head FOR UPDATE;
    IF
        NEW.position <> head.position + 1 OR NEW.previous <> head.hash
        OR NEW.hash <> encode(
            sha256(convert_to(NEW.previous || chr(10) || NEW.content, 'UTF8')), 'hex'
        )
    THEN
        RAISE EXCEPTION 'audit entry % does not follow entry %', NEW.position, head.position
            USING ERRCODE = 'restrict_violation';
    END IF;
    UPDATE audit_head SET position = NEW.position, hash = NEW.hash;
    RETURN NEW;
END
$$;

CREATE TRIGGER audit_entries_are_chained BEFORE INSERT ON audit_entries
FOR EACH ROW EXECUTE FUNCTION append_audit_entry();

CREATE TRIGGER audit_entries_are_kept BEFORE UPDATE OR DELETE ON audit_entries
FOR EACH ROW EXECUTE FUNCTION refuse_rewrite();

CREATE TRIGGER audit_entries_stay BEFORE TRUNCATE ON audit_entries
FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewrite();

CREATE TRIGGER audit_head_follows BEFORE UPDATE OR DELETE ON audit_head
FOR EACH ROW EXECUTE FUNCTION refuse_head_change();

CREATE TRIGGER audit_head_stays BEFORE TRUNCATE ON audit_head
FOR EACH STATEMENT EXECUTE FUNCTION refuse_head_change();

-- An entry gets its result once, and leaves only if the chain has it with everything it says.
CREATE FUNCTION refuse_pending_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF
        TG_OP = 'UPDATE' AND OLD.outcome IS NULL AND NEW.outcome IS NOT NULL
        AND (NEW.id, NEW.recorded_at, NEW.request) = (OLD.id, OLD.recorded_at, OLD.request)
    THEN
        RETURN NEW;
    END IF;
    IF
        TG_OP = 'DELETE' AND EXISTS (
            SELECT FROM audit_entries AS entry
            WHERE entry.pending_id = OLD.id AND entry.content::jsonb @> OLD.request
                AND (OLD.outcome IS NULL OR entry.content::jsonb -> 'outcome' = OLD.outcome)
        )
    THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'rows of % can be completed once, and leave with the chain only', TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END
$$;

CREATE TRIGGER audit_pending_is_kept BEFORE UPDATE OR DELETE ON audit_pending
FOR EACH ROW EXECUTE FUNCTION refuse_pending_change();

CREATE TRIGGER audit_pending_stays BEFORE TRUNCATE ON audit_pending
FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewrite();

-- A receiver never goes back: an entry that it has confirmed stays confirmed.
CREATE FUNCTION refuse_export_rewind() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.position >= OLD.position AND NEW.receiver = OLD.receiver THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'the position of % never goes back', OLD.receiver
        USING ERRCODE = 'restrict_violation';
END
$$;

CREATE TRIGGER audit_exports_advance BEFORE UPDATE ON audit_exports
FOR EACH ROW EXECUTE FUNCTION refuse_export_rewind();
