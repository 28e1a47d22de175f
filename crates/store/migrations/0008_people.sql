-- How people are reached, and who has come in by the front door.

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '60s';

-- Messages of alerts that nobody was told yet: the first one of each, and its reminders. Written with
-- the alert, and gone when they are handed to the post.
CREATE TABLE outbox (
    alert bigint NOT NULL REFERENCES alerts (id) ON DELETE CASCADE,
    reminder integer NOT NULL,
    PRIMARY KEY (alert, reminder)
);

-- One row for each message to each receiver. It ends once, and what came of it is never rewritten.
CREATE TABLE deliveries (
    id uuid PRIMARY KEY,
    alert bigint NOT NULL REFERENCES alerts (id) ON DELETE CASCADE,
    reminder integer NOT NULL,
    -- What tells receivers apart; nothing secret.
    receiver text NOT NULL,
    -- Whether it goes out with everything else that is only good to know.
    digest boolean NOT NULL,
    -- The message it goes out in, with the others of a digest: the id of the first of them. It is
    -- written before the first attempt, so that each attempt has the same id and says the same.
    parcel uuid,
    due_at timestamptz NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    -- Until when somebody is at it.
    claimed_until timestamptz,
    ended_at timestamptz,
    -- delivered, given_up, settled or no_receiver.
    outcome text,
    -- Why the last attempt failed.
    error text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (alert, reminder, receiver)
);

CREATE INDEX deliveries_open ON deliveries (due_at) WHERE ended_at IS NULL;
CREATE INDEX deliveries_in_parcels ON deliveries (parcel) WHERE ended_at IS NULL;
CREATE INDEX deliveries_by_time ON deliveries (created_at, id);

-- Every attempt, also those that failed.
CREATE TABLE delivery_attempts (
    delivery uuid NOT NULL REFERENCES deliveries (id) ON DELETE CASCADE,
    number integer NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Nothing where it arrived.
    error text,
    PRIMARY KEY (delivery, number)
);

-- People's own tokens. Only the hash of a token is kept, and one that was revoked stays as a record.
CREATE TABLE people (
    id uuid PRIMARY KEY,
    name text NOT NULL,
    hash text NOT NULL UNIQUE,
    added_by text NOT NULL,
    added_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    revoked_by text,
    revoked_at timestamptz
);

-- One token for each person at a time; names that differ only in their capitals are too much alike.
CREATE UNIQUE INDEX people_one_token ON people (lower(name)) WHERE revoked_at IS NULL;

-- Browsers of people who have come in by the front door. Only the hash of what a browser carries is
-- kept, and that of the token it came in with: a session lasts no longer than its token.
CREATE TABLE sessions (
    hash text PRIMARY KEY,
    person text NOT NULL,
    -- Nothing where the server wanted no token.
    token text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL
);

-- What a task may spend, by its rules and what people have granted. Nothing where there is no limit.
ALTER TABLE tasks ADD COLUMN budget_usd numeric;

-- Workers that are there: each says so every few seconds, and takes its row away when it goes.
CREATE TABLE workers (
    name text PRIMARY KEY,
    slots integer NOT NULL,
    started_at timestamptz NOT NULL,
    seen_at timestamptz NOT NULL
);

-- Whose run it is.
ALTER TABLE runs ADD COLUMN worker text;
