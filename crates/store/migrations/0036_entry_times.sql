-- Time of each task's last entry, so that the next one is never earlier. Nothing until the first entry
-- after this migration.

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '60s';

ALTER TABLE history_heads ADD COLUMN at timestamptz;
ALTER TABLE history_heads ADD COLUMN at_nanos smallint;

CREATE OR REPLACE FUNCTION chain_entry() RETURNS trigger LANGUAGE plpgsql AS $$
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
        INSERT INTO history_heads (task, first_entry, entries, hash, at, at_nanos)
        VALUES (NEW.task, NEW.sequence, NEW.sequence, NEW.hash, NEW.at, NEW.at_nanos);
    ELSE
        UPDATE history_heads SET
            entries = NEW.sequence, hash = NEW.hash, at = NEW.at, at_nanos = NEW.at_nanos
        WHERE history_heads.task = NEW.task;
    END IF;
    RETURN NEW;
END
$$;
