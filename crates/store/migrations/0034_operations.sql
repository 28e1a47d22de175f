-- Upgrades and maintenance of an installation.

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '60s';

-- Newest migration that the program of a worker knows; null for programs from before this one. An upgrade
-- is finished once no worker of the old version runs, which `schema_compatibility` then says.
ALTER TABLE workers ADD COLUMN schema_version bigint;

-- Servers, as they last reported. Older programs do not report.
CREATE TABLE servers (
    name text PRIMARY KEY,
    schema_version bigint NOT NULL,
    started_at timestamptz NOT NULL,
    seen_at timestamptz NOT NULL
);

-- One row during maintenance: no runs start until it is removed.
CREATE TABLE maintenance (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    reason text NOT NULL,
    started_by text NOT NULL,
    started_at timestamptz NOT NULL
);

-- Nobody but the owner reads them, as other records of the whole installation (migration 32).
ALTER TABLE servers ENABLE ROW LEVEL SECURITY;
ALTER TABLE maintenance ENABLE ROW LEVEL SECURITY;
