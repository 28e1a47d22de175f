-- What the workers of a pool share: places that few may have at once, and providers that nobody may
-- ask for a while.

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '60s';

-- One row for each place that somebody has. A holder that dies keeps it until its time is over.
CREATE TABLE leases (
    kind text NOT NULL,
    key text NOT NULL,
    holder text NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (kind, key, holder)
);

-- Until when no run begins on a provider: its quota is used up.
CREATE TABLE holds (
    provider text PRIMARY KEY,
    until timestamptz NOT NULL
);
