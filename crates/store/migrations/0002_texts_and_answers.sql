-- Texts that the machine only refers to: rules, notes, briefs, what failed. Known by the hash of
-- their content, so that the same text is kept once and never changes.

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '60s';

CREATE TABLE texts (
    hash text PRIMARY KEY,
    content text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- What a job answered. A worker that dies before its answer arrives is asked again, and gives the
-- same one.
CREATE TABLE answers (
    task uuid NOT NULL,
    ticket bigint NOT NULL,
    answer jsonb NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (task, ticket)
);
