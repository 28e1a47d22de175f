-- Earlier versions took labels of any length when a task was added, and one of some thousand characters does
-- not fit in the index of 0037. Cutting such labels, as 0033 does, is not enough: an index also takes the old
-- rows as long as any transaction may still read them. So the table is written anew, with only the current
-- rows. This migration was written after 0033, and comes before it.

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '600s';

-- Hardly any database has such labels, and writing the table anew keeps everybody from it.
DO $$
BEGIN
    IF EXISTS (
        SELECT FROM tasks
        WHERE EXISTS (SELECT FROM unnest(labels) AS label WHERE octet_length(label) > 2000)
    ) THEN
        -- The limit is `MAX_LABEL_CHARS`.
        EXECUTE
            'CREATE FUNCTION pg_temp.cut_labels(labels text []) RETURNS text []
             LANGUAGE sql IMMUTABLE AS
             ''SELECT ARRAY(SELECT left(label, 50) FROM unnest(labels) AS label)''';
        ALTER TABLE tasks ALTER COLUMN labels TYPE text [] USING pg_temp.cut_labels(labels);
    END IF;
END
$$;
