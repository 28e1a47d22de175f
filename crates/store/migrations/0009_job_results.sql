-- A stored job result is what the worker returns, with the report of a finished job inside. Before, both
-- were wrapped in one more object.

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '60s';

UPDATE answers
SET
    answer = CASE
        WHEN answer -> 'answer' ? 'ended' AND answer ? 'report'
            THEN jsonb_set(answer -> 'answer', '{ended,report}', answer -> 'report')
        ELSE answer -> 'answer'
    END
WHERE answer ? 'answer';
