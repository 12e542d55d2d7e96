-- No archive of old manifests, no success files in folders that pipelines share, a replica identity of every table, why
-- each step failed, and what is missing in a target.

-- The archive is gone: the ledger is as quick without it (docs/operations.md, "When history grows"). A
-- database with archived ranges never comes here: migrate.py refuses it before it makes any version, and so does the
-- constraint, should somebody archive meanwhile.

ALTER TABLE manifest_range ADD CONSTRAINT range_not_archived CHECK (kind <> 'archived');  -- a type keeps its values

DROP VIEW any_manifest, lost_range, archived_view, standing_archived;
DROP FUNCTION archive(bigint, bigint[]), why_not_archived(bigint, timestamptz), sum_of_digests(text[]),
              sum_of_counts(jsonb[]);
DROP TABLE archived_attempt, archived_publication, archived_manifest, archived_hour, archive_range, archive_sink, archive;

-- No row of these goes any more.
DROP TRIGGER never_deleted ON manifest;
DROP TRIGGER never_deleted ON attempt;
DROP TRIGGER never_deleted ON publication;
CREATE TRIGGER never_deleted BEFORE DELETE ON manifest FOR EACH ROW EXECUTE FUNCTION refuse();
CREATE TRIGGER never_deleted BEFORE DELETE ON attempt FOR EACH ROW EXECUTE FUNCTION refuse();
CREATE TRIGGER never_deleted BEFORE DELETE ON publication FOR EACH ROW EXECUTE FUNCTION refuse();

-- TRUNCATE asks no trigger of rows: a ledger emptied by hand would be green.
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON manifest FOR EACH STATEMENT EXECUTE FUNCTION refuse();
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON manifest_range FOR EACH STATEMENT EXECUTE FUNCTION refuse();
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON chain FOR EACH STATEMENT EXECUTE FUNCTION refuse();
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON attempt FOR EACH STATEMENT EXECUTE FUNCTION refuse();
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON publication FOR EACH STATEMENT EXECUTE FUNCTION refuse();
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON run FOR EACH STATEMENT EXECUTE FUNCTION refuse();
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON run_end FOR EACH STATEMENT EXECUTE FUNCTION refuse();
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON sink FOR EACH STATEMENT EXECUTE FUNCTION refuse();
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON event FOR EACH STATEMENT EXECUTE FUNCTION refuse();

DROP TRIGGER sums_of_archived ON manifest;
-- A manifest is counted when it becomes done, with what is published of it.
CREATE OR REPLACE FUNCTION sum_manifest() RETURNS trigger LANGUAGE plpgsql SET search_path = tidemark AS $$
BEGIN
    INSERT INTO done_sum (pipeline, part, manifests, read, written, dead_lettered, last_done)
    SELECT NEW.pipeline, part_of(NEW.id), 1, coalesce(max((counts ->> 'read')::bigint), 0),
           coalesce(max((counts ->> 'written')::bigint), 0), coalesce(max((counts ->> 'dead_lettered')::bigint), 0),
           NEW.done_at
    FROM publication WHERE manifest_id = NEW.id;
    INSERT INTO done_sum (pipeline, part, sink, manifests)
    SELECT NEW.pipeline, part_of(NEW.id), sink, 1 FROM publication WHERE manifest_id = NEW.id;
    RETURN NULL;
END $$;

-- The newest audits are kept, not only the last one of each depth.
ALTER TABLE last_audit RENAME TO audit;
ALTER TABLE audit DROP CONSTRAINT last_audit_pkey, ADD PRIMARY KEY (pipeline, deep, at);

-- As before, without the archive.
CREATE OR REPLACE FUNCTION rename_pipeline(old_name text, new_name text) RETURNS void
LANGUAGE plpgsql SET search_path = tidemark AS $$
DECLARE
    renamed jsonb := jsonb_build_object('pipeline', new_name);
BEGIN
    DELETE FROM former_name WHERE name = new_name AND pipeline = old_name;
    INSERT INTO pipeline SELECT (jsonb_populate_record(p, jsonb_build_object('name', new_name))).*
    FROM pipeline p WHERE p.name = old_name;
    UPDATE former_name SET pipeline = new_name WHERE pipeline = old_name;
    UPDATE sink SET pipeline = new_name WHERE pipeline = old_name;
    UPDATE run SET pipeline = new_name WHERE pipeline = old_name;
    UPDATE manifest SET pipeline = new_name WHERE pipeline = old_name;
    UPDATE chain SET pipeline = new_name WHERE pipeline = old_name;
    UPDATE manifest_hour SET pipeline = new_name WHERE pipeline = old_name;
    INSERT INTO hour SELECT (jsonb_populate_record(h, renamed)).* FROM hour h WHERE h.pipeline = old_name;
    UPDATE success_file SET pipeline = new_name WHERE pipeline = old_name;
    DELETE FROM hour WHERE pipeline = old_name;
    UPDATE done_sum SET pipeline = new_name WHERE pipeline = old_name;
    UPDATE audit SET pipeline = new_name WHERE pipeline = old_name;
    UPDATE stream_folders SET pipeline = new_name WHERE pipeline = old_name;
    UPDATE stream_folders SET shared_with = array_replace(shared_with, old_name, new_name)
    WHERE old_name = ANY (shared_with);
    DELETE FROM pipeline WHERE name = old_name;
    INSERT INTO former_name (name, pipeline) VALUES (old_name, new_name);
END $$;

-- When Airflow tries a failed manifest again, at the latest; NULL: nobody does by itself.
ALTER TABLE manifest ADD COLUMN retry_at timestamptz;
-- As before; but an attempt may fail before it has a number, and an adopt skips numbers in each state: the restored
-- database does not know the attempts that have staged something since.
CREATE OR REPLACE FUNCTION check_edge() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.attempt < OLD.attempt
        OR (OLD.state = 'planned' AND NEW.state = 'failed' AND NEW.attempt <> OLD.attempt)
        OR (OLD.state <> NEW.state AND (OLD.state, NEW.state) NOT IN (
            ('planned', 'running'), ('planned', 'failed'), ('running', 'done'), ('running', 'failed'),
            ('running', 'blocked'), ('failed', 'running'), ('blocked', 'planned')))
    THEN
        RAISE EXCEPTION 'manifest %: % (attempt %) -> % (attempt %) is not an edge',
            OLD.id, OLD.state, OLD.attempt, NEW.state, NEW.attempt USING ERRCODE = 'TM003';
    END IF;
    RETURN NEW;
END $$;
ALTER TABLE failed_task ADD COLUMN retry_at timestamptz;  -- as for a manifest
-- The address of the source that did not answer, when that was why it failed: several pipelines may have this one cause.
ALTER TABLE manifest ADD COLUMN silent text;
ALTER TABLE failed_task ADD COLUMN silent text;
ALTER TABLE failed_task DROP CONSTRAINT failed_task_task_check;
ALTER TABLE failed_task ADD CONSTRAINT failed_task_task_check CHECK (task IN ('plan', 'process', 'close'));

-- As before, without the column that said who archived it.
DROP VIEW manifest_view;
CREATE VIEW manifest_view AS
SELECT m.id, m.pipeline, r.run_key, m.slice, m.state, m.attempt, m.reason, m.retry_at, m.silent, m.dag_run, m.created_at,
       m.done_at, is_alive(m.id, m.attempt) AS alive,
       coalesce(ranges.retired, false) AS retired,
       coalesce(ranges.list, '[]') AS ranges,
       coalesce(publications.list, '[]') AS publications,
       coalesce(lacking.sinks, '{}') AS unfilled,
       coalesce(accepted.sinks, '{}') AS given_up
FROM manifest m
JOIN run r ON r.id = m.run_id
LEFT JOIN LATERAL (
    SELECT jsonb_agg(jsonb_build_object(
               'at', jsonb_build_object('topic', c.topic, 'topic_id', c.topic_id, 'partition', c.partition),
               'start', g.start_offset, 'end', g.end_offset, 'incarnation', c.generation, 'anchor', a.end_offset)
               ORDER BY c.topic, c.partition, g.start_offset) AS list,
           bool_or(c.retired_at IS NOT NULL) AS retired
    FROM manifest_range g
    JOIN chain c ON c.id = g.chain_id
    JOIN manifest_range a ON a.chain_id = g.chain_id AND a.kind = 'anchor'
    WHERE g.manifest_id = m.id) ranges ON true
LEFT JOIN LATERAL (
    -- Behind: a newer attempt that was to write to this sink too is published in another one.
    SELECT jsonb_agg(to_jsonb(p) - '{manifest_id,pipeline,target}'::text[] || jsonb_build_object('behind', EXISTS (
               SELECT FROM standing_publication other
               JOIN attempt a ON a.manifest_id = other.manifest_id AND a.attempt = other.settled
               WHERE other.manifest_id = p.manifest_id AND other.settled > p.settled AND p.sink = ANY (a.sinks)))
           ORDER BY p.sink) AS list
    FROM standing_publication p WHERE p.manifest_id = m.id) publications ON true
LEFT JOIN LATERAL (
    SELECT array_agg(s.name ORDER BY s.name) AS sinks
    FROM sink s WHERE m.state = 'done' AND s.pipeline = m.pipeline AND s.retired_at IS NULL
      AND NOT EXISTS (SELECT FROM publication p WHERE p.manifest_id = m.id AND p.sink = s.name)
      AND NOT EXISTS (SELECT FROM given_up g WHERE g.manifest_id = m.id AND g.sink = s.name)) lacking ON true
LEFT JOIN LATERAL (
    SELECT array_agg(g.sink ORDER BY g.sink) AS sinks FROM given_up g WHERE g.manifest_id = m.id) accepted ON true;

-- A file _SUCCESS says that an hour is complete, which no pipeline knows of a folder that others write into. Those that
-- were put there have the name of their pipeline; where a pipeline has the folder for itself again, it puts new ones.
DELETE FROM success_file WHERE whose IS NOT NULL;
ALTER TABLE success_file DROP COLUMN whose;
ALTER TABLE stream_folders ADD COLUMN success_files boolean NOT NULL DEFAULT false;  -- no other pipeline may write there

-- By which column the newest row of a key is known; NULL: by the offset, or there is no key.
ALTER TABLE sink ADD COLUMN row_order text;

-- The columns that `key: record_key` has meant since the first plan; NULL: the file lists those of the key, if any.
ALTER TABLE sink ADD COLUMN record_key text[];

-- A publication of all tables, as Debezium makes one, does not keep rows of these from being changed.
ALTER TABLE manifest_range REPLICA IDENTITY USING INDEX range_one_end;
ALTER TABLE done_sum REPLICA IDENTITY FULL;

-- What a plan, an adopt or a close has found missing of a publication. It is mended when a newer attempt settles that;
-- or when whoever looks again finds the evidence (a record, a marker) there, if that was all that was missing.
CREATE TABLE missing_output (
    manifest_id   bigint NOT NULL,
    sink          text NOT NULL,
    settled       int NOT NULL,               -- that of the publication
    only_evidence boolean NOT NULL,
    lost_values   boolean NOT NULL,           -- of columns: no look at the output shows that they were there
    found_at      timestamptz NOT NULL DEFAULT now(),
    what          text NOT NULL,
    next_step     text NOT NULL,
    PRIMARY KEY (manifest_id, sink),
    FOREIGN KEY (manifest_id, sink) REFERENCES publication ON UPDATE CASCADE
);

-- The table that this database last published to, which a target of the same name need not be. NULL: not known, or the
-- identity says it; empty: a person has accepted that it is gone.
ALTER TABLE target ADD COLUMN table_id text;

-- The columns that published rows have there, each with what tells it from a later one of its name. NULL: not known.
ALTER TABLE target ADD COLUMN columns jsonb;

-- The id of the cluster that the pipeline reads, where its source tells one. NULL: not known.
ALTER TABLE pipeline ADD COLUMN cluster text;

-- Expectations that a person has accepted of a manifest: the SHA-256 of name and condition.
CREATE TABLE accepted_expectation (
    manifest_id bigint NOT NULL REFERENCES manifest,
    question    text NOT NULL,
    PRIMARY KEY (manifest_id, question)
);

-- What a plan has found: offsets of the source that were not published, and the time before which all was. NULL: the run
-- was planned by an older version, or none of the source; or no run said it.
ALTER TABLE run ADD COLUMN lag bigint CHECK (lag >= 0);
ALTER TABLE run ADD COLUMN published_before timestamptz;
CREATE INDEX run_planned_at ON run (pipeline, planned_at, id);  -- the newest ones

-- An attempt that no process holds while its driver works on a cluster: it is alive until then, unless it has ended.
CREATE TABLE lease (
    manifest_id bigint PRIMARY KEY REFERENCES manifest,
    attempt     int NOT NULL,
    until       timestamptz NOT NULL
);

-- As before, or by a lease.
CREATE OR REPLACE FUNCTION is_alive(manifest bigint, attempt int) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT FROM pg_locks
        WHERE locktype = 'advisory' AND objsubid = 1 AND granted
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
          AND (classid::bigint << 32) + objid::bigint = tidemark.attempt_lock($1, $2))
    OR EXISTS (
        SELECT FROM tidemark.lease l JOIN tidemark.attempt a USING (manifest_id, attempt)
        WHERE l.manifest_id = $1 AND l.attempt = $2 AND l.until > clock_timestamp() AND a.state = 'running')
$$;
