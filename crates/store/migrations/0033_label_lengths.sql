-- Earlier versions took labels of any length when a task was added, and one of some thousand characters does
-- not fit in the index of 0037. That migration cuts labels, too, but in the transaction that makes the index,
-- which can then still meet the old rows. So this one comes before it, although it was written later. In a
-- database that has 0037 already, it cuts labels that were written since, such as those of stories with a
-- long ID.

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '600s';

-- The limit is `MAX_LABEL_CHARS`.
UPDATE tasks SET labels = ARRAY(SELECT left(label, 50) FROM unnest(labels) AS label)
WHERE EXISTS (SELECT FROM unnest(labels) AS label WHERE char_length(label) > 50);
