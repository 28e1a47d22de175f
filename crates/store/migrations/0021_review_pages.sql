-- Reviews in a browser: comments on lines of a change, unsent drafts of them, and the files that each
-- person has viewed.

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '60s';

-- Comments on lines. All comments on one line are a thread.
CREATE TABLE line_comments (
    -- Derived from the content, so that a repeated request adds nothing.
    id uuid PRIMARY KEY,
    task uuid NOT NULL REFERENCES tasks (id),
    person text NOT NULL,
    commit text NOT NULL,
    path text NOT NULL,
    -- Version of the file that the line number counts in.
    side text NOT NULL CHECK (side IN ('old', 'new')),
    line bigint NOT NULL CHECK (line > 0),
    -- Text of the line, by which the comment is found again in a later commit.
    code text NOT NULL,
    content text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE INDEX line_comments_by_task ON line_comments (task, at);

-- Comments that their author has not sent yet. Nobody else sees them.
CREATE TABLE comment_drafts (
    task uuid NOT NULL REFERENCES tasks (id),
    person text NOT NULL,
    path text NOT NULL,
    side text NOT NULL CHECK (side IN ('old', 'new')),
    line bigint NOT NULL CHECK (line > 0),
    content text NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (task, person, path, side, line)
);

-- Files of a change that a person has viewed. A mark counts while the file's part of the patch is the
-- same.
CREATE TABLE viewed_files (
    task uuid NOT NULL REFERENCES tasks (id),
    person text NOT NULL,
    path text NOT NULL,
    -- Hash of the file's part of the patch.
    digest text NOT NULL,
    viewed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (task, person, path)
);
