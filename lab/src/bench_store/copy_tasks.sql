-- Copies tasks with what lists and metrics read about them. Tables that are only read by the key of one
-- task are left out: a copy of them would cost time, and no page would notice.
--
-- Each copy is `spacing` older than the next one. Its ID ascends with its time, like that of a real
-- task, and its title ends with its number.
CREATE FUNCTION pg_temp.copy_tasks(
    sources uuid [], first_number bigint, last_number bigint, newest bigint, spacing interval
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    wanted record;
    names text;
    expressions text;
BEGIN
    -- Neither foreign keys nor hash chains are checked.
    SET LOCAL session_replication_role = replica;
    SET LOCAL synchronous_commit = off;
    CREATE TEMP TABLE copied ON COMMIT DROP AS
    SELECT
        number,
        source.id AS source,
        ages.age,
        (
            lpad(to_hex((extract(EPOCH FROM source.created_at - ages.age) * 1000)::bigint), 12, '0')
            || '70008' || lpad(to_hex(number), 15, '0')
        )::uuid AS id
    FROM generate_series(first_number, last_number) AS number
    CROSS JOIN LATERAL (SELECT (newest - number) * spacing AS age) AS ages
    INNER JOIN tasks AS source ON source.id = sources[1 + number % cardinality(sources)];
    FOR wanted IN
        SELECT
            oid,
            relname AS name,
            CASE relname WHEN 'tasks' THEN 'id' ELSE 'task' END AS key
        FROM pg_class
        WHERE
            oid = ANY(ARRAY[
                'tasks', 'entries', 'plans', 'approvals', 'iterations', 'alerts', 'usage', 'runs',
                'checks', 'history_heads'
            ]::regclass [])
    LOOP
        SELECT
            string_agg(quote_ident(attname), ', '),
            string_agg(
                CASE
                    WHEN attname = wanted.key THEN 'copied.id'
                    WHEN wanted.name = 'tasks' AND attname = 'title'
                        THEN 'source.title || '', part '' || copied.number'
                    WHEN wanted.name = 'tasks' AND attname = 'memory'
                        THEN 'replace(source.memory::text, source.id::text, copied.id::text)::jsonb'
                    WHEN atttypid = 'timestamptz'::regtype
                        THEN format('source.%I - copied.age', attname)
                    ELSE format('source.%I', attname)
                END, ', '
            )
        INTO names, expressions
        FROM pg_attribute
        WHERE
            attrelid = wanted.oid AND attnum > 0 AND NOT attisdropped
            AND attgenerated = '' AND attidentity = '';
        EXECUTE format(
            'INSERT INTO %1$I (%2$s) SELECT %3$s FROM copied
             INNER JOIN %1$I AS source ON source.%4$I = copied.source',
            wanted.name, names, expressions, wanted.key
        );
    END LOOP;
END $$;
