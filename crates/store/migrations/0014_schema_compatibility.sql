-- The oldest schema that a program must know to use this database. A migration that removes or
-- redefines something raises it to its own number; one that only adds leaves it alone. Programs
-- that do not know the newest migrations, but this one, still run.

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '60s';

CREATE TABLE schema_compatibility (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    oldest_version bigint NOT NULL
);

INSERT INTO schema_compatibility (oldest_version) VALUES (14);
