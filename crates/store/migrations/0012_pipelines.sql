-- Pipelines: a story taken through ordered phases. One row per story with its newest run, and one
-- row per phase of each run. Both are projections of the workflow, which holds the truth.

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '60s';

CREATE TABLE pipelines (
    -- Unique among tasks too: runs of agents are stored under either.
    id uuid PRIMARY KEY,
    project uuid NOT NULL REFERENCES projects (id),
    feature_dir text NOT NULL,
    story_id text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),

    -- Number of writes, for readers that wait for the next one.
    version bigint NOT NULL DEFAULT 0,
    -- Number of the newest run, from 1, and how many events it has taken. Both are 0 before the
    -- first run is saved.
    run_number integer NOT NULL DEFAULT 0,
    revision bigint NOT NULL DEFAULT 0,
    -- The newest run, whole.
    run jsonb,

    -- What lists filter by.
    live boolean NOT NULL DEFAULT false,
    needs_person boolean NOT NULL DEFAULT false,
    started_by text,
    started_at timestamptz,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),

    base text,
    story_path text,
    branch text,
    commit text,
    delivery_error text,
    CONSTRAINT pipelines_story_key UNIQUE (project, feature_dir, story_id)
)
-- A row is rewritten with every step; room on its page keeps the new one beside the old.
WITH (fillfactor = 70);

CREATE INDEX pipelines_by_project ON pipelines (project, updated_at);
CREATE INDEX pipelines_by_update ON pipelines (updated_at);
CREATE INDEX pipelines_asking ON pipelines (updated_at) WHERE needs_person;

CREATE TABLE pipeline_phases (
    pipeline uuid NOT NULL,
    run_number integer NOT NULL,
    phase smallint NOT NULL,
    -- ID of the phase in its pipeline.
    name text NOT NULL,
    -- complete, failed, blocked or skipped.
    status text NOT NULL,
    signal text,
    reason text,
    completed_at timestamptz,
    tokens bigint NOT NULL,
    PRIMARY KEY (pipeline, run_number, phase)
);
