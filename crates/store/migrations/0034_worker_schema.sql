-- Newest migration that the program of a worker knows; null for programs from before this one. An upgrade
-- is finished once no worker of the old version runs, which `schema_compatibility` then says.

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '60s';

ALTER TABLE workers ADD COLUMN schema_version bigint;
