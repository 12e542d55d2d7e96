-- Totals and the contributions of manifests. psycopg.sql replaces {..} by identifiers; %(..)s are values.

-- name: define
INSERT INTO tidemark_target.aggregate (target, pipeline, definition)
VALUES (%(target)s, %(pipeline)s, %(definition)s) ON CONFLICT DO NOTHING;

-- name: put_back
INSERT INTO tidemark_target.aggregate (target, pipeline, definition) VALUES ({target}, {pipeline}, {definition});

-- name: definition
SELECT pipeline, definition FROM tidemark_target.aggregate WHERE target = %(target)s;

-- name: rename_pipeline
UPDATE tidemark_target.aggregate SET pipeline = %(pipeline)s WHERE target = %(target)s AND pipeline = %(old)s;

-- name: empty_contributions
-- Empties the contributions of an earlier attempt. Their keys are kept until the totals are combined again.
WITH emptied AS (
    UPDATE {contributions} SET _attempt = %(attempt)s, _rows = 0, {emptied} WHERE _manifest_id = %(manifest)s RETURNING 1)
SELECT count(*) AS contributions FROM emptied;

-- name: contribute
-- Combines what the receipt's tasks staged for each key.
WITH contributed AS (
    INSERT INTO {contributions} ({key}, _manifest_id, _attempt, _rows, {values})
    SELECT {key}, %(manifest)s, %(attempt)s, sum(c._rows), {combined}
    FROM {staging} c WHERE _task = ANY (%(tasks)s) GROUP BY {key}
    ON CONFLICT ({key}, _manifest_id) DO UPDATE SET _rows = EXCLUDED._rows, {replaced}
    RETURNING _rows)
SELECT count(*) AS keys, coalesce(sum(_rows), 0)::bigint AS rows FROM contributed;

-- name: add
-- For a manifest that never had contributions: adjusts each total, in key order so that two merges do not deadlock.
INSERT INTO {totals} AS t ({key}, _rows, {values})
SELECT {key}, _rows, {values} FROM {contributions} WHERE _manifest_id = %(manifest)s ORDER BY {key}
ON CONFLICT ({key}) DO UPDATE SET _rows = t._rows + EXCLUDED._rows, {adjusted};

-- name: lock_totals
-- A statement of its own, so that the next one sees what other transactions committed while this one waited for their
-- locks. If one statement locked and combined, two manifests at once would each miss the contribution of the other.
INSERT INTO {totals} AS t ({key}, _rows)
SELECT {key}, 0 FROM {contributions} WHERE _manifest_id = %(manifest)s ORDER BY {key}
ON CONFLICT ({key}) DO UPDATE SET _rows = t._rows;

-- name: combine
UPDATE {totals} t SET _rows = s._rows, {assigned}
FROM (SELECT {key}, sum(c._rows) AS _rows, {combined}
      FROM {contributions} c JOIN (SELECT {key} FROM {contributions} WHERE _manifest_id = %(manifest)s) o USING ({key})
      GROUP BY {key}) s
WHERE {same_key};

-- name: drop_empty_totals
DELETE FROM {totals} t USING {contributions} s
WHERE s._manifest_id = %(manifest)s AND s._rows = 0 AND t._rows = 0 AND {same_key}
-- include: not_numbered
;

-- name: not_numbered
-- A total that has a copy is kept with 0 rows: its revision prevents that an older revision comes back. The statement
-- itself looks for the trigger, because the pipeline file of this attempt may be older than the copy.
  AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = to_regclass(%(target)s) AND tgname = 'tidemark_next_revision')

-- name: drop_empty_contributions
DELETE FROM {contributions} WHERE _manifest_id = %(manifest)s AND _rows = 0;

-- name: lock_both
-- Attempts wait for this lock, readers do not.
LOCK TABLE {contributions}, {totals} IN SHARE ROW EXCLUSIVE MODE;

-- name: combine_all
WITH combined AS (
    INSERT INTO {totals} AS t ({key}, _rows, {values})
    SELECT {key}, sum(c._rows) AS _rows, {combined} FROM {contributions} c GROUP BY {key}
    ON CONFLICT ({key}) DO UPDATE SET _rows = EXCLUDED._rows, {replaced}
    WHERE (t._rows, {total_values}) IS DISTINCT FROM (EXCLUDED._rows, {excluded_values})
    RETURNING 1)
SELECT count(*) AS totals FROM combined;

-- name: empty_strays
WITH emptied AS (
    UPDATE {totals} t SET _rows = 0, {emptied}
    WHERE t._rows <> 0 AND NOT EXISTS (SELECT FROM {contributions} s WHERE {same_key}) RETURNING 1)
SELECT count(*) AS totals FROM emptied;

-- name: drop_emptied
DELETE FROM {totals} t WHERE t._rows = 0
-- include: not_numbered
;

-- name: note_checksum
UPDATE tidemark_target.marker SET checksum = (
    SELECT coalesce(sum({hash}), 0)::text FROM {contributions} c WHERE _manifest_id = %(manifest)s)
WHERE target = %(target)s AND pipeline = %(pipeline)s AND sink = %(sink)s AND manifest = %(manifest)s;

-- name: contributions
-- The number of keys and records, and the checksum, of one manifest or of each.
SELECT c._manifest_id AS manifest, count(*) AS keys, sum(c._rows)::bigint AS rows, sum({hash})::text AS checksum
FROM {contributions} c WHERE %(manifest)s::bigint IS NULL OR _manifest_id = %(manifest)s GROUP BY c._manifest_id;

-- name: checksums
SELECT manifest, checksum FROM tidemark_target.marker
WHERE target = %(target)s AND pipeline = %(pipeline)s AND sink = %(sink)s
  AND (%(manifest)s::bigint IS NULL OR manifest = %(manifest)s);

-- name: wrong_totals
-- Keys of one manifest, or of all, whose total is not the combination of their contributions. They are grouped by one
-- manifest that contributes to them; null if none does.
WITH chosen AS (
    SELECT c.* FROM {contributions} c
    WHERE %(manifest)s::bigint IS NULL
       OR ({key}) IN (SELECT {key} FROM {contributions} WHERE _manifest_id = %(manifest)s)
), combined AS (
    SELECT {key}, max(c._manifest_id) AS _manifest_id, sum(c._rows) AS _rows, {combined} FROM chosen c GROUP BY {key}
)
SELECT s._manifest_id AS manifest, count(*) AS totals, min(concat_ws(', ', {key})) AS example
FROM combined s FULL JOIN (SELECT * FROM {totals} WHERE _rows <> 0) t USING ({key})
WHERE (%(manifest)s::bigint IS NULL OR s._manifest_id IS NOT NULL)
  AND (s._rows, {combined_values}) IS DISTINCT FROM (t._rows, {total_values})
GROUP BY s._manifest_id ORDER BY s._manifest_id;
