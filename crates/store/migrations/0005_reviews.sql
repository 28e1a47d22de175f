-- What our own checks said of commits.

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '60s';

-- One row for each check of a commit: its gates, or the rest of its review. The job that made it is its
-- number, so that a job that is done again writes nothing new.
CREATE TABLE checks (
    task uuid NOT NULL,
    ticket bigint NOT NULL,
    iteration integer NOT NULL,
    record jsonb NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (task, ticket)
);

-- What a gate says of a commit that work starts from. The key is the hash of how the gate is run.
CREATE TABLE baselines (
    project uuid NOT NULL,
    commit text NOT NULL,
    gate text NOT NULL,
    result jsonb NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project, commit, gate)
);
