-- One block per statement of the PostgreSQL sink. psycopg.sql replaces {..} by identifiers; %(..)s are values.

-- name: has_schema
-- Asked first, because CREATE SCHEMA IF NOT EXISTS needs the right to create a schema even if it exists.
SELECT to_regnamespace(quote_ident(%(schema)s)) IS NOT NULL AS there;

-- name: create_schema
CREATE SCHEMA tidemark_target;

-- name: support
-- Tidemark's own tables in the target database: who owns a table, what was published, and dead letters.
CREATE TABLE IF NOT EXISTS tidemark_target.owner (
    target   text PRIMARY KEY,
    database uuid NOT NULL,                   -- only one manifest database writes a table: several would repeat ids
    before   uuid[] NOT NULL DEFAULT '{}',    -- earlier owners: the databases before each adoption
    identity uuid NOT NULL DEFAULT gen_random_uuid(),
    position bigint NOT NULL DEFAULT 0        -- grows with each merge, so that a restored copy is noticed
);

-- The fence: for each manifest, only a higher attempt may replace a lower one.
CREATE TABLE IF NOT EXISTS tidemark_target.marker (
    target       text NOT NULL,
    pipeline     text NOT NULL,
    sink         text NOT NULL,
    manifest     bigint NOT NULL,
    attempt      int NOT NULL,
    record       jsonb NOT NULL,
    superseded   bigint NOT NULL DEFAULT 0,
    stale        bigint NOT NULL DEFAULT 0,
    checksum     text,                        -- of the manifest's contributions to totals
    published_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (target, pipeline, sink, manifest)
);

CREATE TABLE IF NOT EXISTS tidemark_target.dead_letter (
    target       text NOT NULL,
    _topic       text NOT NULL,
    _partition   int NOT NULL,
    _offset      bigint NOT NULL,
    _timestamp   timestamptz,
    _key         bytea,
    _manifest_id bigint NOT NULL,
    _value       bytea,
    _headers     json,                        -- jsonb cannot hold the character NUL, which a header may have
    _error_class text NOT NULL,
    _reason      text NOT NULL,
    _schemas     text                         -- the schemas that it was read with, if the decoder knows them
);
-- If Debezium publishes all tables, PostgreSQL refuses to delete from a table without a replica identity.
ALTER TABLE tidemark_target.dead_letter REPLICA IDENTITY FULL;
CREATE INDEX IF NOT EXISTS dead_letter_of ON tidemark_target.dead_letter (target, _manifest_id);

-- The definition of each table of totals: one pipeline adds to it, by one definition.
CREATE TABLE IF NOT EXISTS tidemark_target.aggregate (
    target     text PRIMARY KEY,
    pipeline   text NOT NULL,
    definition text NOT NULL
);

-- name: has_support
SELECT to_regclass('tidemark_target.dead_letter') IS NOT NULL AS there;

-- name: lock_support
SELECT pg_advisory_xact_lock(1414089812, -1);

-- name: lock_manifest
-- A merge holds this lock until its COMMIT. A newer attempt waits for the lock once. So it sees all that was merged
-- before, and a lower attempt that begins to merge later finds itself fenced before it commits.
SELECT pg_advisory_xact_lock(
    hashtext(concat_ws('/', %(target)s::text, %(pipeline)s::text, %(sink)s::text)), (%(manifest)s::bigint %% 2147483648)::int);

-- name: set_local
SELECT set_config(%(name)s, %(value)s, true);

-- name: claim
INSERT INTO tidemark_target.owner (target, database) VALUES (%(target)s, %(database)s) ON CONFLICT DO NOTHING;

-- name: owner
SELECT database::text AS database, before::text[] AS before, identity::text AS identity, position
FROM tidemark_target.owner WHERE target = %(target)s;

-- name: note_target
-- The sink's name of the target, which includes its connection, gets a row too, beside the row of the table itself. It
-- cannot be mistaken for a table, because no table has such a name.
INSERT INTO tidemark_target.owner (target, database)
SELECT %(noted)s, database FROM tidemark_target.owner WHERE target = %(target)s ON CONFLICT DO NOTHING;

-- name: registered_targets
SELECT target FROM tidemark_target.owner WHERE starts_with(target, 'connection ') AND right(target, length(%(of)s)) = %(of)s;

-- name: hand_over
UPDATE tidemark_target.owner SET database = %(database)s, before = %(before)s::uuid[] WHERE target = %(target)s;

-- name: advance
-- The last statement of a merge. It locks the row until COMMIT, so merges of one table wait here only for a moment.
UPDATE tidemark_target.owner SET position = position + 1 WHERE target = %(target)s;

-- name: database_id
-- system_identifier is unique for each server, the oid for each database of it.
SELECT format('%%s.%%s', system_identifier, (SELECT oid FROM pg_database WHERE datname = current_database())) AS id
FROM pg_control_system();

-- name: table_ids
SELECT name, c.oid::text AS id, c.relkind::text AS kind
FROM unnest(%(tables)s::text[]) WITH ORDINALITY AS t (name, place) LEFT JOIN pg_class c ON c.oid = to_regclass(name)
ORDER BY place;

-- name: partition_key
-- Returns a row if the table is partitioned by other columns than these, or by an expression. Then it cannot have a
-- unique key over these columns.
SELECT pg_get_partkeydef(p.partrelid) AS divided_by FROM pg_partitioned_table p
WHERE p.partrelid = to_regclass(%(table)s) AND NOT EXISTS (
    SELECT FROM pg_attribute a WHERE a.attrelid = p.partrelid
    HAVING bool_and(a.attname = ANY (%(key)s::text[])) FILTER (WHERE a.attnum = ANY (p.partattrs::int2[]))
       AND NOT 0 = ANY (p.partattrs::int2[]));

-- name: has_rows
SELECT EXISTS (SELECT FROM {table}) AS there, row_security_active(%(name)s::regclass) AS is_filtered,
    current_user::text AS "user";

-- name: forget_markers
DELETE FROM tidemark_target.marker WHERE target = %(target)s AND pipeline = %(pipeline)s AND sink = %(sink)s;

-- name: records
SELECT pipeline, manifest, attempt FROM tidemark_target.marker
WHERE target = %(target)s AND (%(pipeline)s::text IS NULL OR (pipeline, sink) = (%(pipeline)s, %(sink)s))
  AND manifest > %(above)s;

-- name: marker
SELECT attempt, record, superseded, stale FROM tidemark_target.marker
WHERE target = %(target)s AND pipeline = %(pipeline)s AND sink = %(sink)s AND manifest = %(manifest)s;

-- name: columns
SELECT a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type, a.attnotnull AS not_null,
       a.atthasdef OR a.attidentity <> '' AS filled, a.attnum::int AS number
FROM pg_attribute a
WHERE a.attrelid = to_regclass(%(table)s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum;

-- name: has_unique_key
-- ON CONFLICT needs a unique index over exactly these columns, without conditions and expressions.
SELECT 1 AS found FROM pg_index i
WHERE i.indrelid = to_regclass(%(table)s) AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
  AND (SELECT array_agg(a.attname::text ORDER BY a.attname)
       FROM pg_attribute a WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1]))
      = %(key)s::text[];

-- name: folded_keys
-- Key columns with a collation in which different texts are equal, such as A and a: two keys would have one row.
SELECT a.attname::text AS name FROM pg_attribute a JOIN pg_collation c ON c.oid = a.attcollation
WHERE a.attrelid = to_regclass(%(table)s) AND a.attname = ANY (%(key)s::text[]) AND NOT c.collisdeterministic;

-- name: may_write
SELECT bool_and(has_table_privilege(%(table)s, name)) AS allowed, current_user::text AS "user"
FROM unnest(%(rights)s::text[]) AS name;

-- name: same_database
-- Only in the manifest database is the session lock of a living attempt visible.
SELECT current_user::text AS "user", EXISTS (
    SELECT FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND granted
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND (classid::bigint << 32) + objid::bigint = %(lock)s) AS same;

-- name: create_staging
-- Unlogged, because it is written once and read once. A crash of the server empties it; counting notices that.
DROP TABLE IF EXISTS {staging}, {staging_dead};
CREATE UNLOGGED TABLE {staging} (_task text NOT NULL, {columns});
CREATE UNLOGGED TABLE {staging_dead} (
    _task text NOT NULL, _topic text NOT NULL, _partition int NOT NULL, _offset bigint NOT NULL, _timestamp timestamptz,
    _key bytea, _manifest_id bigint NOT NULL, _value bytea, _headers json,
    _error_class text NOT NULL, _reason text NOT NULL, _schemas text);

-- name: drop_staging
DROP TABLE IF EXISTS {staging}, {staging_dead};

-- name: staging_tables
SELECT c.relname AS name FROM pg_class c WHERE c.relnamespace = to_regnamespace('tidemark_target') AND c.relkind = 'r'
  AND c.relname LIKE 'staging%%';

-- name: fence
-- Returns no row if this attempt, or a higher one, has published already.
INSERT INTO tidemark_target.marker AS m (target, pipeline, sink, manifest, attempt, record)
VALUES (%(target)s, %(pipeline)s, %(sink)s, %(manifest)s, %(attempt)s, %(record)s)
ON CONFLICT (target, pipeline, sink, manifest) DO UPDATE
SET attempt = EXCLUDED.attempt, record = EXCLUDED.record, superseded = 0, stale = 0, published_at = now()
WHERE m.attempt < EXCLUDED.attempt
RETURNING attempt;

-- name: rename_markers
-- Renames the markers of one sink, or of all sinks of a renamed pipeline. A paused attempt may leave a marker under the
-- old name after the others were renamed: of two markers the higher attempt is kept.
WITH renamed AS (
    DELETE FROM tidemark_target.marker
    WHERE target = %(target)s AND pipeline = %(from_pipeline)s AND (sink = %(from_sink)s OR %(from_sink)s::text IS NULL)
    RETURNING *)
INSERT INTO tidemark_target.marker AS m (target, pipeline, sink, manifest, attempt, record, superseded, stale, checksum,
                                         published_at)
SELECT target, %(pipeline)s, CASE WHEN %(from_sink)s::text IS NULL THEN sink ELSE %(sink)s END, manifest, attempt, record,
       superseded, stale, checksum, published_at FROM renamed
ON CONFLICT (target, pipeline, sink, manifest) DO UPDATE
SET attempt = EXCLUDED.attempt, record = EXCLUDED.record, superseded = EXCLUDED.superseded, stale = EXCLUDED.stale,
    checksum = EXCLUDED.checksum, published_at = EXCLUDED.published_at
WHERE m.attempt < EXCLUDED.attempt;

-- name: merge
-- Merges the newest staged row of each key, in key order, so that two merges do not deadlock. Only in gave_way they may:
-- then PostgreSQL cancels one, which is tried again.
WITH log (topic, partition, generation) AS (
    SELECT * FROM unnest(%(topics)s::text[], %(partitions)s::int[], %(generations)s::int[])
), staged AS MATERIALIZED (
    SELECT s.*, log.generation AS _log_generation, %(attempt)s::int AS _attempt
    FROM {staging} s JOIN log ON (log.topic, log.partition) = (s._topic, s._partition)
    WHERE s._task = ANY (%(tasks)s)
), newest AS MATERIALIZED (
    SELECT DISTINCT ON ({key}) * FROM staged s ORDER BY {key}, {staged_version_descending}
), gave_way AS (
    -- Rows of earlier attempts whose record this attempt made again with a lower version than another staged record of
    -- the same key has. They are replaced by that other record.
    UPDATE {table} AS t SET {newest_assignments} FROM staged s, newest n
    WHERE %(attempt)s::int > 1 AND ({table_key}) = ({staged_key}) AND ({table_record}) = ({staged_record})
      AND t._attempt < s._attempt AND ({staged_key}) = ({newest_key}) AND ({staged_record}) <> ({newest_record})
    RETURNING {table_key}, true AS _gave_way
), merged AS (
    INSERT INTO {table} AS t ({columns})
    SELECT {columns} FROM newest LEFT JOIN gave_way USING ({key}) WHERE _gave_way IS NULL ORDER BY {key}
    ON CONFLICT ({key}) DO UPDATE SET {assignments}
    -- Of two rows of one record, the higher attempt's was made by newer code. It wins, even if its order_by is lower.
    WHERE t._offset IS NULL OR CASE WHEN ({table_record}) = ({new_record}) THEN t._attempt < excluded._attempt
                                    ELSE ({table_version}) < ({new_version}) END
    RETURNING 1
)
SELECT (SELECT count(*) FROM staged) AS staged, (SELECT count(*) FROM newest) AS newest,
       (SELECT count(*) FROM merged) + (SELECT count(*) FROM gave_way) AS merged;

-- name: note_merge
UPDATE tidemark_target.marker SET superseded = %(superseded)s, stale = %(stale)s
WHERE target = %(target)s AND pipeline = %(pipeline)s AND sink = %(sink)s AND manifest = %(manifest)s;

-- name: forget_dead_letters
DELETE FROM tidemark_target.dead_letter WHERE target = %(target)s AND _manifest_id = %(manifest)s;

-- name: bury
INSERT INTO tidemark_target.dead_letter (target, _topic, _partition, _offset, _timestamp, _key, _manifest_id, _value,
                                         _headers, _error_class, _reason, _schemas)
SELECT %(target)s, _topic, _partition, _offset, _timestamp, _key, _manifest_id, _value, _headers, _error_class, _reason,
       _schemas
FROM {staging_dead} WHERE _task = ANY (%(tasks)s);

-- name: has_triggers
SELECT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = to_regclass(%(table)s) AND NOT tgisinternal) AS there;

-- name: check_constraints
-- Deferred triggers and constraints run now, not at COMMIT.
SET CONSTRAINTS ALL IMMEDIATE;

-- name: count_lacking
-- Staged rows whose key the table does not have, or has in an older version.
WITH log (topic, partition, generation) AS (
    SELECT * FROM unnest(%(topics)s::text[], %(partitions)s::int[], %(generations)s::int[])
), staged AS (
    SELECT s.*, log.generation AS _log_generation, 0 AS _attempt
    FROM {staging} s JOIN log ON (log.topic, log.partition) = (s._topic, s._partition)
    WHERE s._task = ANY (%(tasks)s)
)
SELECT count(*) AS lacking FROM staged s LEFT JOIN {table} t USING ({key})
WHERE t._offset IS NULL OR ({table_version}) < ({staged_version});

-- name: rows_by_manifest
SELECT _manifest_id AS manifest, _topic AS topic, _partition AS partition, min(_offset) AS first,
       max(_offset) AS last, count(*) AS rows, coalesce(_attempt, 0) AS attempt
FROM {table} WHERE _manifest_id IS NOT NULL GROUP BY _manifest_id, _topic, _partition, _attempt;

-- name: row_at
-- The row of a record, unless a newer row of its key replaced it. Reads the whole table.
SELECT {columns} FROM {table}
WHERE _manifest_id = %(manifest)s AND _topic = %(topic)s AND _partition = %(partition)s AND _offset = %(offset)s;

-- name: dead_letter_at
SELECT _reason AS reason FROM tidemark_target.dead_letter
WHERE target = %(target)s AND _manifest_id = %(manifest)s
  AND _topic = %(topic)s AND _partition = %(partition)s AND _offset = %(offset)s;

-- name: each_dead_letter
SELECT {columns} FROM tidemark_target.dead_letter WHERE target = %(target)s AND _manifest_id = %(manifest)s
ORDER BY _topic COLLATE "C", _partition, _offset;

-- name: count_dead_letters
SELECT count(*) AS rows FROM tidemark_target.dead_letter WHERE target = %(target)s AND _manifest_id = %(manifest)s;

-- name: dead_letters_by_manifest
SELECT _manifest_id AS manifest, count(*) AS rows FROM tidemark_target.dead_letter WHERE target = %(target)s
GROUP BY _manifest_id;

-- name: superseded
SELECT manifest, superseded FROM tidemark_target.marker
WHERE target = %(target)s AND pipeline = %(pipeline)s AND sink = %(sink)s;
