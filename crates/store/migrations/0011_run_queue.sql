-- Runs that wait for a lease. The order is in the code; a run that no longer asks is forgotten.

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '60s';

CREATE TABLE run_queue (
    kind text NOT NULL,
    key text NOT NULL,
    holder text NOT NULL,
    priority text NOT NULL,
    since timestamptz NOT NULL,
    seen_at timestamptz NOT NULL,
    PRIMARY KEY (kind, key, holder)
);
