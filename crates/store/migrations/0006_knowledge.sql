-- What the team knows, how it came to that, and what it did to tasks.

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '60s';

-- Every change of an entry takes a number, so that whoever keeps entries in memory sees that they have
-- grown old.
CREATE SEQUENCE knowledge_revisions;

CREATE TABLE knowledge (
    id uuid PRIMARY KEY,
    -- Nothing where it holds in every project.
    project uuid,
    kind text NOT NULL,
    status text NOT NULL,
    -- By what a lesson finds the entry that says the same.
    fingerprint text NOT NULL,
    -- To the letter, as the core writes it.
    entry jsonb NOT NULL,
    revision bigint NOT NULL DEFAULT nextval('knowledge_revisions'),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE INDEX knowledge_by_project ON knowledge (project, status, id);
CREATE INDEX knowledge_by_revision ON knowledge (project, revision);

-- Who changed what, and why. Nothing of it is ever rewritten.
CREATE TABLE knowledge_changes (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    entry uuid NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- A person's name; nothing where a task proposed it.
    by text,
    -- added, edited, approved, rejected, retired, proposed or merged.
    what text NOT NULL,
    reason text,
    -- The entry as it was afterwards.
    entry_then jsonb NOT NULL
);

CREATE INDEX knowledge_changes_by_entry ON knowledge_changes (entry, id);

-- Which entries a plan was held against, and which of them its agents were told.
CREATE TABLE knowledge_matches (
    task uuid NOT NULL,
    plan text NOT NULL,
    entry uuid NOT NULL,
    project uuid NOT NULL,
    -- blocker, warning, recommendation, convention or learning.
    role text NOT NULL,
    relevance integer NOT NULL,
    reasons jsonb NOT NULL,
    shown boolean NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (task, plan, entry)
);

CREATE INDEX knowledge_matches_by_entry ON knowledge_matches (entry, task);

-- What an entry means to a model that makes vectors of texts.
CREATE TABLE knowledge_vectors (
    entry uuid NOT NULL REFERENCES knowledge (id) ON DELETE CASCADE,
    model text NOT NULL,
    -- Of which text: one that was edited has another.
    digest text NOT NULL,
    vector real [] NOT NULL,
    PRIMARY KEY (entry, model)
);
