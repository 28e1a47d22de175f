-- Removal of old rows that nothing needs any more. The operator decides after how many days
-- (operator.yaml); nothing is removed without that.

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '60s';

-- Drops the months of metered calls that ended before a time. Returns how many.
CREATE FUNCTION forget_model_calls(before timestamptz) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    partition text;
    month date;
    removed integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('tamma.ensure_partitions'));
    FOR partition IN
        SELECT c.relname FROM pg_inherits AS i
        INNER JOIN pg_class AS c ON i.inhrelid = c.oid
        WHERE i.inhparent = 'model_calls'::regclass AND c.relname ~ '^model_calls_\d{4}_\d{2}$'
        ORDER BY c.relname
    LOOP
        month := to_date(right(partition, 7), 'YYYY_MM');
        IF (month + interval '1 month') AT TIME ZONE 'UTC' <= before THEN
            EXECUTE format('DROP TABLE %I', partition);
            removed := removed + 1;
        END IF;
    END LOOP;
    DELETE FROM model_calls_other WHERE at < before;
    RETURN removed;
END
$$;

-- Deletes texts from before a time that no open task and no story refers to. References are hashes,
-- so every hash in their rows counts. Returns how many were deleted.
CREATE FUNCTION forget_texts(before timestamptz) RETURNS bigint LANGUAGE sql AS $$
    WITH RECURSIVE used_by AS (
        SELECT tasks::text AS content FROM tasks WHERE tasks.live
        UNION ALL
        SELECT entries.data::text FROM entries
        INNER JOIN tasks ON entries.task = tasks.id AND tasks.live
        WHERE entries.at >= tasks.created_at
        UNION ALL
        SELECT answers.answer::text FROM answers
        INNER JOIN tasks ON answers.task = tasks.id AND tasks.live
        UNION ALL
        SELECT pipelines::text FROM pipelines
        UNION ALL
        SELECT pipeline_phases::text FROM pipeline_phases
    ),
    used (hash) AS (
        SELECT found.match[1]
        FROM used_by
        CROSS JOIN LATERAL regexp_matches(used_by.content, '[0-9a-f]{64}', 'g') AS found (match)
        UNION
        -- Rules refer to prompts, which are texts too.
        SELECT found.match[1]
        FROM used
        INNER JOIN texts ON used.hash = texts.hash
        CROSS JOIN LATERAL regexp_matches(texts.content, '[0-9a-f]{64}', 'g') AS found (match)
    ),
    removed AS (
        DELETE FROM texts
        WHERE
            texts.created_at < before
            AND NOT EXISTS (SELECT FROM used WHERE used.hash = texts.hash)
        RETURNING 1
    )
    SELECT count(*) FROM removed
$$;
