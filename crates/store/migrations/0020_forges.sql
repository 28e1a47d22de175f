-- Pull requests, issues and other effects outside: what Tamma intends, has done and has seen.

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '60s';

-- One row for each effect outside. The row is written before the effect. An effect whose answer was
-- lost is looked up before it is tried again.
CREATE TABLE outward_effect (
    -- Names the effect for ever, such as `tamma/<task>/<generation>/open`.
    key text PRIMARY KEY,
    kind text NOT NULL,
    project uuid NOT NULL REFERENCES projects (id),
    -- Nothing for effects of several tasks, such as the advance of a branch.
    task uuid,
    -- Commit that the effect is about, if it depends on one.
    precondition_sha text,
    state text NOT NULL CHECK (state IN ('intended', 'done', 'refused')),
    -- ID that the other side gave it.
    remote_id text,
    -- Reason of a refusal, as the other side gave it.
    refusal text,
    attempts integer NOT NULL DEFAULT 1,
    -- Attempt that works on it now. A request of a process that died can still be on its way, so
    -- nobody else starts before the lease has expired.
    holder uuid,
    leased_until timestamptz,
    intended_at timestamptz NOT NULL DEFAULT now(),
    settled_at timestamptz
);

CREATE INDEX outward_effect_open ON outward_effect (intended_at) WHERE state = 'intended';
CREATE INDEX outward_effect_by_task ON outward_effect (task);
CREATE INDEX outward_effect_by_age ON outward_effect (settled_at);

-- One row for each pull request that Tamma opened, with what the forge said last.
CREATE TABLE pull_requests (
    task uuid PRIMARY KEY,
    project uuid NOT NULL REFERENCES projects (id),
    forge text NOT NULL,
    repository text NOT NULL,
    number bigint NOT NULL,
    url text NOT NULL,
    branch text NOT NULL,
    base_branch text NOT NULL,
    -- open, merged or closed.
    status text NOT NULL DEFAULT 'open' CHECK (status IN ('open', 'merged', 'closed')),
    facts jsonb,
    facts_hash text,
    -- Validator of the last answer.
    cursor text,
    -- Counts webhooks and requests of people that say that it changed, and those that an observation
    -- has covered. An observation that began before a hint does not cover it.
    hints bigint NOT NULL DEFAULT 1,
    hints_seen bigint NOT NULL DEFAULT 0,
    observed_at timestamptz,
    -- Last complete read, whatever the cursor says.
    read_at timestamptz,
    -- Hash of the facts that its workflow has received.
    delivered text,
    merged_commit text,
    merged_at timestamptz,
    -- Until when effects of the merge are traced.
    watched_until timestamptz,
    -- Commits of the base branch until this one were compared with the merge.
    traced_to text,
    -- Checks of the merge on the base branch are complete, and were looked at.
    base_checked boolean NOT NULL DEFAULT false,
    opened_at timestamptz NOT NULL DEFAULT now()
);

-- Forges do not tell repositories apart by upper and lower case.
CREATE UNIQUE INDEX pull_requests_by_number ON pull_requests (forge, lower(repository), number);
CREATE INDEX pull_requests_to_observe ON pull_requests (forge, lower(repository), observed_at)
WHERE status = 'open';
CREATE INDEX pull_requests_by_project ON pull_requests (project, opened_at);
CREATE INDEX pull_requests_watched ON pull_requests (watched_until) WHERE status = 'merged';

-- Webhooks that were accepted. They are hints: each only marks something as changed.
CREATE TABLE webhook_deliveries (
    forge text NOT NULL,
    delivery text NOT NULL,
    event text NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (forge, delivery)
);

CREATE INDEX webhook_deliveries_by_age ON webhook_deliveries (received_at);

-- Position of the poller in a repository.
CREATE TABLE forge_cursors (
    forge text NOT NULL,
    -- In lower case.
    repository text NOT NULL,
    -- Issues changed until then were looked at.
    intake_until timestamptz,
    -- Counts webhooks that say that an issue changed, and those that a read has covered.
    hints bigint NOT NULL DEFAULT 1,
    hints_seen bigint NOT NULL DEFAULT 0,
    -- No request before then.
    blocked_until timestamptz,
    quota_left double precision,
    polled_at timestamptz,
    PRIMARY KEY (forge, repository)
);

-- One row for each issue that became a task.
CREATE TABLE issue_tasks (
    forge text NOT NULL,
    repository text NOT NULL,
    number bigint NOT NULL,
    task uuid PRIMARY KEY,
    project uuid NOT NULL REFERENCES projects (id),
    url text NOT NULL,
    -- Hash of the title and the text that the task has.
    revision text NOT NULL,
    -- Last comment that reached the task.
    last_comment text,
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE UNIQUE INDEX issue_tasks_by_number ON issue_tasks (forge, lower(repository), number);

-- Entries of merge queues, in order.
CREATE TABLE merge_queue_entries (
    forge text NOT NULL,
    repository text NOT NULL,
    branch text NOT NULL,
    task uuid NOT NULL,
    head text NOT NULL,
    project uuid NOT NULL REFERENCES projects (id),
    -- Larger is more urgent.
    priority smallint NOT NULL,
    -- waiting, testing, landed, returned or left.
    state text NOT NULL CHECK (state IN ('waiting', 'testing', 'landed', 'returned', 'left')),
    -- Reason of a return, and the log that goes with it.
    reason text,
    log text,
    landed_commit text,
    queued_at timestamptz NOT NULL DEFAULT now(),
    settled_at timestamptz,
    PRIMARY KEY (task, head)
);

CREATE INDEX merge_queue_entries_by_queue
ON merge_queue_entries (forge, repository, branch, state, queued_at);
CREATE INDEX merge_queue_entries_by_age ON merge_queue_entries (settled_at);

-- State of a merge queue, as its workflow saw it last.
CREATE TABLE merge_queues (
    forge text NOT NULL,
    repository text NOT NULL,
    branch text NOT NULL,
    project uuid NOT NULL REFERENCES projects (id),
    -- Reason for a pause; NULL while it runs.
    paused text,
    state jsonb NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (forge, repository, branch)
);

-- What happened to merged changes.
CREATE TABLE aftercare_findings (
    task uuid NOT NULL,
    project uuid NOT NULL REFERENCES projects (id),
    -- revert, fix or red_base.
    kind text NOT NULL CHECK (kind IN ('revert', 'fix', 'red_base')),
    commit text NOT NULL,
    detail text NOT NULL,
    found_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (task, kind, commit)
);
