-- Views of the board that people have saved: filters, order and grouping under a name.

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '60s';

CREATE TABLE saved_views (
    person text NOT NULL,
    name text NOT NULL,
    -- Query string of the board, without the question mark.
    query text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (person, name)
);
