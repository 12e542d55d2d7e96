-- What making and upgrading the tables asks and stores beside schema.sql and migrations/.

-- name: lock
-- One process at a time; until the end of the transaction.
SELECT pg_advisory_xact_lock(1414089812, 0);

-- name: actor
-- Who stands in the history of the rows that a migration changes.
SELECT set_config('tidemark.actor', 'tidemark db migrate', true);

-- name: databases
SELECT to_regclass('tidemark.database') AS ours, to_regclass('public.dag_run') AS airflow,
    current_setting('server_encoding') AS encoding;

-- name: tables
-- As JSON, because older tables lack the column "schema".
SELECT to_jsonb(ours) AS tables FROM tidemark.database AS ours;

-- name: archived
-- By pipeline how many manifests are archived; asked of versions that have the table.
SELECT pipeline, count(*) AS manifests FROM tidemark.archived_manifest GROUP BY pipeline ORDER BY pipeline;

-- name: created
INSERT INTO tidemark.database (version, schema) VALUES (1, %(schema)s);

-- name: upgraded
UPDATE tidemark.database SET version = %(version)s, schema = %(schema)s;
