-- The statements that create and upgrade the tables, besides schema.sql and migrations/.

-- name: lock
-- Lets one process migrate at a time, until the end of its transaction.
SELECT pg_advisory_xact_lock(1414089812, 0);

-- name: actor
-- The actor in the history of the rows that a migration changes.
SELECT set_config('tidemark.actor', 'tidemark db migrate', true);

-- name: databases
SELECT to_regclass('tidemark.database') AS ours, to_regclass('public.dag_run') AS airflow,
    current_setting('server_encoding') AS encoding;

-- name: tables
-- As JSON, because older tables lack the column "schema".
SELECT to_jsonb(ours) AS tables FROM tidemark.database AS ours;

-- name: archived
-- How many manifests are archived, by pipeline; only for versions that have the table.
SELECT pipeline, count(*) AS manifests FROM tidemark.archived_manifest GROUP BY pipeline ORDER BY pipeline;

-- name: not_carried_over
-- The sinks in use whose evidence release 0.3 kept in another way: Iceberg tables, and totals that DynamoDB added up.
SELECT pipeline, name, target FROM tidemark.sink
WHERE retired_at IS NULL AND (target ~ ' catalog .*, table ' OR target ~ 'DynamoDB table ') ORDER BY pipeline, name;

-- name: created
INSERT INTO tidemark.database (version, schema) VALUES (1, %(schema)s);

-- name: upgraded
UPDATE tidemark.database SET version = %(version)s, schema = %(schema)s;
