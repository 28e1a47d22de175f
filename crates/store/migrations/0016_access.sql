-- Roles of people in projects, as the changes that led to them. Nothing is rewritten: the newest row
-- of a person in a project counts.

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '60s';

CREATE TABLE access_changes (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    project uuid NOT NULL REFERENCES projects (id),
    -- Nothing for everybody who has a token and no role of their own.
    person text,
    -- viewer, member or approver. Nothing where the role was taken away.
    role text,
    -- The operator, and how they proved it.
    changed_by text NOT NULL,
    auth_method text NOT NULL,
    -- granted, revoked or imported.
    source text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE INDEX access_changes_by_person ON access_changes (lower(person), project, id);
CREATE INDEX access_changes_by_project ON access_changes (project, id);

CREATE FUNCTION refuse_access_rewrite() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'changes of access are append-only' USING ERRCODE = 'restrict_violation';
END
$$;

CREATE TRIGGER access_changes_are_kept BEFORE UPDATE OR DELETE ON access_changes
FOR EACH ROW EXECUTE FUNCTION refuse_access_rewrite();

CREATE TRIGGER access_changes_stay BEFORE TRUNCATE ON access_changes
FOR EACH STATEMENT EXECUTE FUNCTION refuse_access_rewrite();

-- A server that does not know roles would answer everybody who has a token.
UPDATE schema_compatibility SET oldest_version = 16;
