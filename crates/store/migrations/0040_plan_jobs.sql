-- A planner can save a plan although its job no longer counts: a person changes the task while the run ends.
-- The next planner makes the same version again, and its plan must replace the old one. So each plan names
-- its job, and a later job or a person replaces it while the history does not name it.

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '60s';

-- Job of the planner. Nothing for a plan that a person has edited, and for plans of earlier versions.
ALTER TABLE plans ADD COLUMN job_number bigint;

CREATE FUNCTION refuse_plan_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF
        TG_OP = 'UPDATE'
        AND NEW.task = OLD.task
        AND NEW.version = OLD.version
        AND OLD.job_number IS NOT NULL
        AND (NEW.job_number IS NULL OR NEW.job_number > OLD.job_number)
        AND EXISTS (SELECT FROM tasks WHERE tasks.id = OLD.task AND tasks.live)
        AND NOT EXISTS (
            SELECT FROM entries
            WHERE
                entries.task = OLD.task
                AND jsonb_path_exists(
                    entries.data,
                    '$.** ? (@.version == $version && @.hash == $hash)',
                    jsonb_build_object('version', OLD.version, 'hash', OLD.hash)
                )
        )
    THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'rows of % are never changed or deleted', TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END
$$;

DROP TRIGGER plans_are_kept ON plans;
CREATE TRIGGER plans_are_kept BEFORE UPDATE OR DELETE ON plans
FOR EACH ROW EXECUTE FUNCTION refuse_plan_change();
