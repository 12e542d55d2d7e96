-- Totals that have a copy elsewhere (copies.py). A trigger gives each changed total the next number of a sequence, so
-- that no statement, and no process of an older release, can forget it. A total is in the copy if its _served equals its
-- _revision.

-- name: support_copies
-- Stores the identity of the copy's place. A place that is restored or created again has another identity.
CREATE SEQUENCE IF NOT EXISTS tidemark_target.revision;
CREATE TABLE IF NOT EXISTS tidemark_target.copy (
    target   text PRIMARY KEY,
    identity text NOT NULL
);
CREATE OR REPLACE FUNCTION tidemark_target.next_revision() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW._revision := nextval('tidemark_target.revision');
    RETURN NEW;
END $$;

-- name: have_support
SELECT to_regclass('tidemark_target.copy') IS NOT NULL AND to_regproc('tidemark_target.next_revision') IS NOT NULL
       AND to_regclass('tidemark_target.revision') IS NOT NULL AS there;

-- name: number_totals
-- Every insert, and every update that does not change _served, gets a revision.
ALTER TABLE {totals} ADD COLUMN IF NOT EXISTS _revision bigint, ADD COLUMN IF NOT EXISTS _served bigint;
DROP TRIGGER IF EXISTS tidemark_first_revision ON {totals};
CREATE TRIGGER tidemark_first_revision BEFORE INSERT ON {totals}
    FOR EACH ROW EXECUTE FUNCTION tidemark_target.next_revision();
DROP TRIGGER IF EXISTS tidemark_next_revision ON {totals};
CREATE TRIGGER tidemark_next_revision BEFORE UPDATE ON {totals}
    FOR EACH ROW WHEN (OLD._served IS NOT DISTINCT FROM NEW._served)
    EXECUTE FUNCTION tidemark_target.next_revision();
CREATE INDEX IF NOT EXISTS {unserved} ON {totals} (_revision) WHERE _served IS DISTINCT FROM _revision;

-- name: are_numbered
SELECT count(*) = 2 AS numbered FROM pg_trigger
WHERE tgrelid = to_regclass(%(target)s) AND tgname IN ('tidemark_first_revision', 'tidemark_next_revision')
  AND tgenabled <> 'D';

-- name: lift_revisions
-- For a database that was restored from a backup: lifts the sequence above all revisions in the copy. It lifts it so far
-- that even revisions which a process from before the restore still puts are lower.
SELECT setval('tidemark_target.revision',
              greatest(%(highest)s, (SELECT last_value FROM tidemark_target.revision)) + 1000000000) AS revision;

-- name: renumber
UPDATE {totals} SET _revision = nextval('tidemark_target.revision'), _served = NULL;

-- name: copy
SELECT identity FROM tidemark_target.copy WHERE target = %(target)s;

-- name: note_first_copy
INSERT INTO tidemark_target.copy (target, identity) VALUES (%(target)s, %(identity)s) ON CONFLICT DO NOTHING;

-- name: note_copy
INSERT INTO tidemark_target.copy (target, identity) VALUES (%(target)s, %(identity)s)
ON CONFLICT (target) DO UPDATE SET identity = EXCLUDED.identity;

-- name: not_served
SELECT {key}, _rows, {values}, _revision FROM {totals}
WHERE _served IS DISTINCT FROM _revision AND _revision > %(after)s ORDER BY _revision LIMIT %(most)s;

-- name: were_served
-- A total that has changed since it was read has another revision, so it is not marked.
UPDATE {totals} SET _served = _revision WHERE _revision = ANY (%(revisions)s) AND _served IS DISTINCT FROM _revision;

-- name: still_served
SELECT _revision FROM {totals} WHERE _revision = ANY (%(revisions)s) AND _served = _revision;

-- name: near_a_limit
-- A rough measure: one byte of text takes at most 6 bytes in JSON.
SELECT {key}, t._rows, {t_values}, t._revision FROM {totals} t
WHERE _served IS DISTINCT FROM _revision
  AND (octet_length(concat({key})) > %(longest_key)s / 8
       OR octet_length(concat({key}, {t_values})) > %(longest_total)s / 8 OR {has_many_digits});

-- name: each_total
-- The totals of one manifest, or all totals.
SELECT {key}, _rows, {values}, _revision, _served FROM {totals}
WHERE %(manifest)s::bigint IS NULL
      OR ({key}) IN (SELECT {key} FROM {contributions} WHERE _manifest_id = %(manifest)s);

-- name: contributors
-- For each of these totals one manifest that contributes to it; for each such manifest the number of its totals.
SELECT manifest, count(*) AS totals, min(example) AS example FROM (
    SELECT max(s._manifest_id) AS manifest, min(concat_ws(', ', {s_key})) AS example
    FROM {totals} t JOIN {contributions} s ON {same_key}
    WHERE t._revision = ANY (%(revisions)s) GROUP BY t._revision) named
GROUP BY manifest ORDER BY manifest;
