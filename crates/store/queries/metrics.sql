-- Counts behind the metrics (tamma_core::metrics::MetricCounts), from the entries of one project or
-- of all projects ($1) from a time ($2) until another one ($3). Unless the caller reads all
-- projects ($4), only these count ($5). The definitions are in crates/core/src/metrics.rs; a test
-- compares both.
WITH totals AS (
    SELECT
        count(*) FILTER (
            WHERE "on" IS NOT NULL AND "to" IN ('completed', 'cancelled', 'failed')
        ) AS ended,
        count(*) FILTER (WHERE "on" IS NOT NULL AND "to" = 'completed') AS completed,
        -- A person's edit is not a retry.
        count(*) FILTER (
            WHERE name = 'SM_PLAN_ADJUSTED' AND NOT actor ? 'person'
        ) AS plan_revisions,
        count(*) FILTER (WHERE (data ->> 'lessons')::bigint > 0) AS with_lessons,
        coalesce(sum((data #>> '{spend,usd}')::numeric), 0)::text AS cost,
        percentile_disc(0.99) WITHIN GROUP (
            ORDER BY greatest(
                floor(extract(EPOCH FROM recorded_at - at) * 1000 - at_nanos / 1000000.0), 0
            )::bigint
        ) FILTER (WHERE "on" IS NOT NULL) AS latency,
        count(*) FILTER (WHERE name = 'SM_COUNCIL_CONVENED') AS councils
    FROM entries
    WHERE
        ($1::uuid IS NULL OR project = $1)
        AND at >= $2
        AND ($3::timestamptz IS NULL OR at < $3)
        AND ($4::bool OR project = ANY($5::uuid []))
),

-- Only tasks with a request: most have none, and to order the entries of all tasks takes longest.
asked AS (
    SELECT DISTINCT task
    FROM entries
    WHERE
        name = 'SM_APPROVAL_REQUESTED'
        AND ($1::uuid IS NULL OR project = $1)
        AND at >= $2
        AND ($3::timestamptz IS NULL OR at < $3)
        AND ($4::bool OR project = ANY($5::uuid []))
),

span AS (
    SELECT
        entries.task,
        entries.sequence,
        entries.at,
        entries.at_nanos,
        entries.name,
        entries."on" IS NOT NULL AS is_transition,
        count(entries."on") OVER (
            PARTITION BY entries.task ORDER BY entries.sequence ROWS UNBOUNDED PRECEDING
        ) AS transitions
    FROM entries
    INNER JOIN asked ON asked.task = entries.task
    WHERE
        ($1::uuid IS NULL OR entries.project = $1)
        AND entries.at >= $2
        AND ($3::timestamptz IS NULL OR entries.at < $3)
        AND ($4::bool OR entries.project = ANY($5::uuid []))
),

-- The last request before each transition, which answers it.
requests AS (
    SELECT DISTINCT ON (task, transitions) task, transitions, at, at_nanos
    FROM span
    WHERE name = 'SM_APPROVAL_REQUESTED'
    ORDER BY task, transitions, sequence DESC
),

turnarounds AS (
    SELECT
        percentile_disc(0.5) WITHIN GROUP (
            ORDER BY greatest(
                floor(
                    extract(EPOCH FROM span.at - requests.at) * 1000
                    + (span.at_nanos - requests.at_nanos) / 1000000.0
                ), 0
            )::bigint
        ) AS turnaround
    FROM requests
    INNER JOIN span
        ON
            span.task = requests.task
            AND span.is_transition
            AND span.transitions = requests.transitions + 1
),

-- The newest rating of each task by each person.
newest_ratings AS (
    SELECT DISTINCT ON (task, actor ->> 'person') (data ->> 'rating')::bigint AS stars
    FROM entries
    WHERE
        data ? 'rating'
        AND actor ? 'person'
        AND ($1::uuid IS NULL OR project = $1)
        AND at >= $2
        AND ($3::timestamptz IS NULL OR at < $3)
        AND ($4::bool OR project = ANY($5::uuid []))
    ORDER BY task, actor ->> 'person', sequence DESC
),

ratings AS (
    SELECT count(*) AS rated, coalesce(sum(stars), 0)::bigint AS stars FROM newest_ratings
),

-- What followed each council: the first entry that shows whether it helped.
effects AS (
    SELECT effect.is_resolved
    FROM entries AS council
    CROSS JOIN LATERAL (
        SELECT
            NOT (
                later.name = 'SM_COUNCIL_CONVENED'
                OR asks.person
                OR later."to" IN ('failed', 'cancelled')
            ) AS is_resolved
        FROM entries AS later
        CROSS JOIN LATERAL (
            SELECT
                later."to" = 'human_escalation'
                AND later."from" <> 'human_escalation'
                AND later.data IS DISTINCT FROM '{"cause": "agent_question"}' AS person
        ) AS asks
        WHERE
            later.task = council.task
            AND later.sequence > council.sequence
            AND later.at >= $2
            AND ($3::timestamptz IS NULL OR later.at < $3)
            AND (
                later.name = 'SM_COUNCIL_CONVENED'
                OR asks.person
                OR later."to" IN ('failed', 'cancelled')
                OR later.name = CASE council."from"
                    WHEN 'planning' THEN 'SM_PLAN_GENERATED'
                    WHEN 'awaiting_approval' THEN 'SM_APPROVAL_GRANTED'
                    WHEN 'validated' THEN 'SM_IMPLEMENTATION_COMPLETED'
                    WHEN 'in_progress' THEN 'SM_IMPLEMENTATION_COMPLETED'
                    WHEN 'testing' THEN 'SM_REVIEW_STARTED'
                    WHEN 'approved' THEN 'SM_DELIVERED'
                    WHEN 'committing' THEN 'SM_DELIVERED'
                    ELSE 'SM_REVIEW_PASSED'
                END
            )
        ORDER BY later.sequence
        LIMIT 1
    ) AS effect
    WHERE
        council.name = 'SM_COUNCIL_CONVENED'
        AND ($1::uuid IS NULL OR council.project = $1)
        AND council.at >= $2
        AND ($3::timestamptz IS NULL OR council.at < $3)
        AND ($4::bool OR council.project = ANY($5::uuid []))
),

councils AS (
    SELECT
        count(*) FILTER (WHERE is_resolved) AS resolved,
        count(*) FILTER (WHERE NOT is_resolved) AS unresolved
    FROM effects
)

SELECT
    totals.ended,
    totals.completed,
    totals.plan_revisions,
    totals.with_lessons,
    totals.cost,
    totals.latency,
    totals.councils,
    turnarounds.turnaround,
    ratings.rated,
    ratings.stars,
    councils.resolved,
    councils.unresolved
FROM totals
CROSS JOIN turnarounds
CROSS JOIN ratings
CROSS JOIN councils
