-- What stood against the changes of tasks, so that what comes again and again is seen.

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '60s';

CREATE TABLE faults (
    project uuid NOT NULL,
    -- Of the fault's text, which may be long.
    digest text NOT NULL,
    task uuid NOT NULL,
    fault text NOT NULL,
    -- Whether the review found it in the code, and no gate by running it.
    in_code boolean NOT NULL,
    -- Where it can be looked up.
    evidence jsonb NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (project, digest, task)
);
