-- Conversations with Tamma, so that every server can continue them, and the number of the issue that a
-- task comes from.

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '60s';

CREATE TABLE conversations (
    id uuid PRIMARY KEY,
    person text NOT NULL,
    -- Pending proposal and the task that was mentioned last.
    state jsonb NOT NULL,
    -- Newest messages and replies, oldest first.
    messages jsonb NOT NULL,
    -- A writer names the revision that it has read, so that two servers never handle one message after
    -- the other as if it were the first.
    revision bigint NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE INDEX conversations_by_time ON conversations (updated_at);

ALTER TABLE tasks ADD COLUMN issue_number bigint;
