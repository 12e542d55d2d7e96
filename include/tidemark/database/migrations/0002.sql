-- What is done is counted when it changes, so that lists, gauges and searches do not read all manifests (docs/adr/0028).

-- Each change of what is done adds rows, so nobody waits for anybody. A run that closes adds the rows of its pipeline up
-- to one for each part and sink.
CREATE TABLE done_sum (
    pipeline      text NOT NULL REFERENCES pipeline,
    part          bigint NOT NULL,             -- the first of the 100,000 ids of manifests that it is about
    sink          text,                        -- of the done manifests, those that this sink shows; NULL: all
    manifests     bigint NOT NULL DEFAULT 0,
    read          bigint NOT NULL DEFAULT 0,   -- records of done manifests, of each as its sink that counts most
    written       bigint NOT NULL DEFAULT 0,
    dead_lettered bigint NOT NULL DEFAULT 0,
    late          bigint NOT NULL DEFAULT 0,   -- of event hours, whose part is 0
    last_done     timestamptz
);
CREATE INDEX ON done_sum (pipeline);

CREATE FUNCTION part_of(manifest bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT manifest - manifest % 100000';

-- The parts with a done manifest that a sink shows nothing of, the newest first; nearly always none.
CREATE FUNCTION parts_lacking(the_pipeline text, the_sink text) RETURNS TABLE (first_id bigint, end_id bigint)
LANGUAGE sql STABLE ROWS 1 SET search_path = tidemark AS $$
    SELECT part, part + 100000 FROM done_sum
    WHERE (the_pipeline IS NULL OR pipeline = the_pipeline) AND (sink IS NULL OR sink = the_sink)
    GROUP BY part HAVING sum(CASE WHEN sink IS NULL THEN manifests ELSE -manifests END) > 0 ORDER BY part DESC
$$;

-- A manifest is counted when it becomes done, with what is published of it, and taken off when it is archived.
CREATE FUNCTION sum_manifest() RETURNS trigger LANGUAGE plpgsql SET search_path = tidemark AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN   -- its publications went before it
        INSERT INTO done_sum (pipeline, part, manifests) VALUES (OLD.pipeline, part_of(OLD.id), -1);
        RETURN NULL;
    END IF;
    INSERT INTO done_sum (pipeline, part, manifests, read, written, dead_lettered, last_done)
    SELECT NEW.pipeline, part_of(NEW.id), 1, coalesce(max((counts ->> 'read')::bigint), 0),
           coalesce(max((counts ->> 'written')::bigint), 0), coalesce(max((counts ->> 'dead_lettered')::bigint), 0),
           NEW.done_at
    FROM publication WHERE manifest_id = NEW.id;
    INSERT INTO done_sum (pipeline, part, sink, manifests)
    SELECT NEW.pipeline, part_of(NEW.id), sink, 1 FROM publication WHERE manifest_id = NEW.id;
    RETURN NULL;
END $$;

-- Of a done manifest: what its publications count after the change, less what they counted before. Before each row, since
-- then the other publications are as the statement has left them so far.
CREATE FUNCTION sum_publication() RETURNS trigger LANGUAGE plpgsql SET search_path = tidemark AS $$
DECLARE
    kept publication := CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
    its manifest;
BEGIN
    SELECT * INTO its FROM manifest WHERE id = kept.manifest_id AND state = 'done';
    -- An insert that finds a row becomes an update, for which this is called again.
    IF NOT FOUND OR TG_OP = 'INSERT' AND EXISTS (
        SELECT FROM publication WHERE manifest_id = NEW.manifest_id AND sink = NEW.sink)
    THEN
        RETURN kept;
    END IF;
    INSERT INTO done_sum (pipeline, part, read, written, dead_lettered)
    SELECT its.pipeline, part_of(its.id),
           coalesce(greatest(read, (NEW.counts ->> 'read')::bigint), 0)
               - coalesce(greatest(read, (OLD.counts ->> 'read')::bigint), 0),
           coalesce(greatest(written, (NEW.counts ->> 'written')::bigint), 0)
               - coalesce(greatest(written, (OLD.counts ->> 'written')::bigint), 0),
           coalesce(greatest(dead_lettered, (NEW.counts ->> 'dead_lettered')::bigint), 0)
               - coalesce(greatest(dead_lettered, (OLD.counts ->> 'dead_lettered')::bigint), 0)
    FROM (SELECT max((counts ->> 'read')::bigint) AS read, max((counts ->> 'written')::bigint) AS written,
                 max((counts ->> 'dead_lettered')::bigint) AS dead_lettered
          FROM publication WHERE manifest_id = its.id AND sink NOT IN (coalesce(OLD.sink, ''), kept.sink)) others;
    INSERT INTO done_sum (pipeline, part, sink, manifests)
    SELECT its.pipeline, part_of(its.id), change.sink, change.manifests
    FROM (VALUES (OLD.sink, -1), (NEW.sink, 1)) AS change (sink, manifests)
    WHERE change.sink IS NOT NULL AND OLD.sink IS DISTINCT FROM NEW.sink;
    RETURN kept;
END $$;

CREATE FUNCTION sum_hour() RETURNS trigger LANGUAGE plpgsql SET search_path = tidemark AS $$
DECLARE
    its hour := CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
BEGIN
    INSERT INTO done_sum (pipeline, part, late)
    SELECT its.pipeline, 0, coalesce(NEW.late, 0) - coalesce(OLD.late, 0)
    WHERE coalesce(NEW.late, 0) <> coalesce(OLD.late, 0);
    RETURN NULL;
END $$;

-- The locks that these take keep changes away until this version is committed; in the order in which archive() takes them.
CREATE TRIGGER sums BEFORE INSERT OR UPDATE OR DELETE ON publication FOR EACH ROW EXECUTE FUNCTION sum_publication();
CREATE TRIGGER sums AFTER INSERT OR UPDATE OR DELETE ON hour FOR EACH ROW EXECUTE FUNCTION sum_hour();
CREATE TRIGGER sums_of_new AFTER INSERT ON manifest FOR EACH ROW WHEN (NEW.state = 'done')
    EXECUTE FUNCTION sum_manifest();
CREATE TRIGGER sums_of_done AFTER UPDATE ON manifest FOR EACH ROW WHEN (OLD.state <> 'done' AND NEW.state = 'done')
    EXECUTE FUNCTION sum_manifest();
CREATE TRIGGER sums_of_archived AFTER DELETE ON manifest FOR EACH ROW WHEN (OLD.state = 'done')
    EXECUTE FUNCTION sum_manifest();

-- What the sums must be; an audit compares them.
CREATE VIEW counted_done AS
SELECT pipeline, part_of(id) AS part, NULL::text AS sink, count(*) AS manifests, coalesce(sum(read), 0)::bigint AS read,
       coalesce(sum(written), 0)::bigint AS written, coalesce(sum(dead_lettered), 0)::bigint AS dead_lettered,
       0::bigint AS late, max(done_at) AS last_done
FROM (
    SELECT m.pipeline, m.id, m.done_at, max((p.counts ->> 'read')::bigint) AS read,
           max((p.counts ->> 'written')::bigint) AS written, max((p.counts ->> 'dead_lettered')::bigint) AS dead_lettered
    FROM manifest m LEFT JOIN publication p ON p.manifest_id = m.id
    WHERE m.state = 'done' GROUP BY m.pipeline, m.id) counted
GROUP BY pipeline, part_of(id)
UNION ALL
SELECT m.pipeline, part_of(m.id), p.sink, count(*), 0, 0, 0, 0, NULL
FROM manifest m JOIN publication p ON p.manifest_id = m.id
WHERE m.state = 'done' GROUP BY m.pipeline, part_of(m.id), p.sink
UNION ALL
SELECT pipeline, 0, NULL, 0, 0, 0, 0, sum(late)::bigint, NULL FROM hour GROUP BY pipeline;

-- For a person who has changed the tables with the triggers off.
CREATE FUNCTION count_done() RETURNS void LANGUAGE plpgsql SET search_path = tidemark AS $$
BEGIN
    LOCK TABLE publication, hour, manifest IN SHARE ROW EXCLUSIVE MODE;
    DELETE FROM done_sum;
    INSERT INTO done_sum SELECT * FROM counted_done;
END $$;
SELECT count_done();

-- As before, with the sums.
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
    UPDATE last_audit SET pipeline = new_name WHERE pipeline = old_name;
    UPDATE stream_folders SET pipeline = new_name WHERE pipeline = old_name;
    UPDATE stream_folders SET shared_with = array_replace(shared_with, old_name, new_name)
    WHERE old_name = ANY (shared_with);
    PERFORM set_config('tidemark.archiving', 'on', true);
    UPDATE archive SET pipeline = new_name WHERE pipeline = old_name;
    UPDATE archived_manifest SET pipeline = new_name WHERE pipeline = old_name;
    UPDATE archived_hour SET pipeline = new_name WHERE pipeline = old_name;
    PERFORM set_config('tidemark.archiving', '', true);
    DELETE FROM pipeline WHERE name = old_name;
    INSERT INTO former_name (name, pipeline) VALUES (old_name, new_name);
END $$;

-- The time of a run, as "periods" and lists have it; what people have given up; what has dead letters. The last two
-- are small.
CREATE INDEX run_time ON run (pipeline, (coalesce(planned_up_to, cut_at, planned_at)));
CREATE INDEX ON accepted_damage (sink) WHERE path = '';
CREATE INDEX ON archived_publication (manifest_id) WHERE (counts ->> 'dead_lettered')::bigint > 0;

-- The pipeline that the name of a success file says, where others write into the same folder; NULL: it says none.
ALTER TABLE success_file ADD COLUMN whose text;
