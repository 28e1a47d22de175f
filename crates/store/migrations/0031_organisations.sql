-- Organisations own projects. Everything that was there before belongs to the default one.

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '60s';

CREATE TABLE organisations (
    id uuid PRIMARY KEY,
    name text NOT NULL,
    -- Nothing for the default one.
    created_by text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT organisations_name_key UNIQUE (name)
);

INSERT INTO organisations (id, name) VALUES ('00000000-0000-0000-0000-000000000001', 'default');

-- Programs that do not know organisations register projects in the default one.
ALTER TABLE projects ADD COLUMN organisation uuid NOT NULL
DEFAULT '00000000-0000-0000-0000-000000000001';

-- There are few projects.
-- squawk-ignore adding-foreign-key-constraint, constraint-missing-not-valid
ALTER TABLE projects ADD CONSTRAINT projects_organisation_fkey
FOREIGN KEY (organisation) REFERENCES organisations (id);

-- squawk-ignore require-concurrent-index-creation
CREATE INDEX projects_by_organisation ON projects (organisation);

-- Roles of people in organisations, as the changes that led to them. The newest row of a person in an
-- organisation counts.
CREATE TABLE organisation_access_changes (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organisation uuid NOT NULL REFERENCES organisations (id),
    person text NOT NULL,
    -- viewer, member, approver or administrator. Nothing where the role was taken away.
    role text,
    -- The administrator or operator, and how they proved it.
    changed_by text NOT NULL,
    auth_method text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE INDEX organisation_access_changes_by_person
ON organisation_access_changes (lower(person), organisation, id);
CREATE INDEX organisation_access_changes_by_organisation
ON organisation_access_changes (organisation, id);

CREATE TRIGGER organisation_access_changes_are_kept
BEFORE UPDATE OR DELETE ON organisation_access_changes
FOR EACH ROW EXECUTE FUNCTION refuse_access_rewrite();

CREATE TRIGGER organisation_access_changes_stay BEFORE TRUNCATE ON organisation_access_changes
FOR EACH STATEMENT EXECUTE FUNCTION refuse_access_rewrite();
