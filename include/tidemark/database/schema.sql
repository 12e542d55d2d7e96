-- The manifest database. Its constraints keep the promises; the code reports violations.
-- Times are timestamptz, ranges of offsets are half-open [start, end). Everything is in the schema "tidemark".

CREATE SCHEMA tidemark;
SET LOCAL search_path = tidemark;

CREATE TYPE range_kind AS ENUM ('anchor', 'data', 'lost', 'archived');
CREATE TYPE manifest_state AS ENUM ('planned', 'running', 'failed', 'blocked', 'done');
CREATE TYPE attempt_state AS ENUM ('running', 'published', 'unchanged', 'failed', 'fenced', 'blocked');
CREATE TYPE run_kind AS ENUM ('scheduled', 'backfill', 'manual');

-- One row: the id of this database. A lake root belongs to one database.
CREATE TABLE database (
    only_row   boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    id         uuid NOT NULL DEFAULT gen_random_uuid(),
    successor_of uuid[] NOT NULL DEFAULT '{}',   -- the databases whose targets this one has adopted
    version    int NOT NULL,
    schema     text NOT NULL,                    -- a digest of this file as it was then
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE pipeline (
    name       text PRIMARY KEY,
    planned_at timestamptz NOT NULL DEFAULT now(),
    retired_at timestamptz                    -- when a person took it off the lists; it is not planned any more
);

-- Where readers that list folders find a topic. Rows stay when a pipeline file changes, since the files stay.
CREATE TABLE stream_folders (
    pipeline    text NOT NULL,
    sink        text NOT NULL,
    topic       text NOT NULL,
    folders     text NOT NULL,                -- root and layout, with %Y %m %d %H open
    shared_with text[] NOT NULL,              -- pipelines that may write the topic there too
    PRIMARY KEY (pipeline, sink, topic, folders)
);

-- The sinks of a pipeline by name and target. A sink that leaves the pipeline file stays known until a person retires
-- it. A name is given once, since receipts and publications have it.
CREATE TABLE sink (
    pipeline     text NOT NULL REFERENCES pipeline,
    name         text NOT NULL,
    target       text NOT NULL,               -- where its output is; it never changes
    known_since  timestamptz NOT NULL DEFAULT now(),
    renamed_from text,                        -- the name that the target still has, until it has the new one
    retired_at   timestamptz,                 -- from then on its publications do not count
    PRIMARY KEY (pipeline, name)
);
CREATE UNIQUE INDEX sink_one_name_for_a_target ON sink (pipeline, target) WHERE retired_at IS NULL;

CREATE TABLE run (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pipeline   text NOT NULL REFERENCES pipeline,
    run_key    text NOT NULL,
    kind       run_kind NOT NULL,
    cut_at     timestamptz,                   -- NULL: up to the last stable offset
    reached    boolean NOT NULL,              -- false: max_slices or an open transaction ended it before the cut
    planned_up_to timestamptz,                -- what was stamped before is planned; NULL: that is not known
    manifests  bigint[] NOT NULL,
    covered_by bigint[] NOT NULL,
    notes      text[] NOT NULL,
    planned_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (pipeline, run_key)                -- planning twice is planning once
);
CREATE INDEX ON run (pipeline, cut_at);
CREATE INDEX ON run (pipeline, planned_up_to);

CREATE TABLE manifest (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id     bigint NOT NULL REFERENCES run,
    pipeline   text NOT NULL REFERENCES pipeline,
    slice      int NOT NULL CHECK (slice >= 0),
    state      manifest_state NOT NULL DEFAULT 'planned',
    attempt    int NOT NULL DEFAULT 0 CHECK (attempt >= 0),   -- the newest number given out: the fencing token
    reason     text,                          -- why it is failed or blocked
    dag_run    text,                          -- the run of Airflow that was to process it last; NULL: none was
    created_at timestamptz NOT NULL DEFAULT now(),
    done_at    timestamptz,
    CHECK ((state = 'done') = (done_at IS NOT NULL)),
    CHECK (state <> 'planned' OR attempt = 0 OR reason IS NOT NULL)
);
CREATE INDEX ON manifest (pipeline, id);
CREATE INDEX ON manifest (run_id);
CREATE INDEX ON manifest (pipeline, id) WHERE state <> 'done';

CREATE TABLE chain (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pipeline      text NOT NULL REFERENCES pipeline,
    topic         text NOT NULL,
    topic_id      text NOT NULL,
    partition     int NOT NULL CHECK (partition >= 0),
    incarnation   int NOT NULL DEFAULT 1,
    blocked       text,                       -- why planning was refused, until a person decides
    blocked_since timestamptz,
    blocked_end   bigint,                     -- truncated: the first offset that may hold another record
    retired_at    timestamptz,                -- when a person accepted that this life of the partition has ended
    UNIQUE (pipeline, topic_id, partition, incarnation),
    CHECK ((blocked IS NULL) = (blocked_since IS NULL))
);

-- The chain: a range starts where another ends, and each start and each end exists once.
-- So no planner can store an overlap, a gap or a fork.
CREATE TABLE manifest_range (
    chain_id     bigint NOT NULL REFERENCES chain,
    start_offset bigint,                      -- NULL only for the anchor
    end_offset   bigint NOT NULL CHECK (end_offset >= 0),
    kind         range_kind NOT NULL,
    manifest_id  bigint REFERENCES manifest,
    CONSTRAINT range_anchor_has_no_start CHECK ((kind = 'anchor') = (start_offset IS NULL)),
    CONSTRAINT range_data_has_manifest CHECK ((kind = 'data') = (manifest_id IS NOT NULL)),
    CONSTRAINT range_not_empty CHECK (start_offset < end_offset),
    CONSTRAINT range_no_fork UNIQUE (chain_id, start_offset),
    CONSTRAINT range_one_end UNIQUE (chain_id, end_offset),
    CONSTRAINT range_no_gap FOREIGN KEY (chain_id, start_offset)
        REFERENCES manifest_range (chain_id, end_offset) DEFERRABLE INITIALLY DEFERRED
);
CREATE UNIQUE INDEX range_one_anchor ON manifest_range (chain_id) WHERE kind = 'anchor';
CREATE INDEX ON manifest_range (manifest_id);
CREATE INDEX ON manifest_range (chain_id) WHERE kind = 'lost';

-- Where a run ended on each chain: its cut, or less when the plan ended before. What it stands for ends there.
CREATE TABLE run_end (
    run_id     bigint NOT NULL REFERENCES run,
    chain_id   bigint NOT NULL REFERENCES chain,
    end_offset bigint NOT NULL CHECK (end_offset >= 0),
    PRIMARY KEY (run_id, chain_id)
);

CREATE TABLE attempt (
    manifest_id bigint NOT NULL REFERENCES manifest,
    attempt     int NOT NULL CHECK (attempt > 0),
    state       attempt_state NOT NULL DEFAULT 'running',
    fingerprint text NOT NULL,                -- of the code and configuration that determine the output
    actor       text NOT NULL,
    receipt     jsonb,                        -- stored before the first object moves
    sinks       text[] NOT NULL DEFAULT '{}', -- the sinks that the attempt was to write to; set with the receipt
    taken_back  text[] NOT NULL DEFAULT '{}', -- sinks where its output may have been removed; declared before that
    error       text,
    note        text,                         -- what people should know of it although it ended well
    started_at  timestamptz NOT NULL DEFAULT now(),
    ended_at    timestamptz,
    PRIMARY KEY (manifest_id, attempt),
    CHECK ((state = 'running') = (ended_at IS NULL))
);
CREATE INDEX ON attempt (manifest_id) WHERE state = 'running';

-- What readers see: one attempt per manifest and sink.
CREATE TABLE publication (
    manifest_id  bigint NOT NULL,
    sink         text NOT NULL,
    attempt      int NOT NULL,
    settled      int NOT NULL,                -- the attempt that published it, or found that its rows are equal
    digest       text NOT NULL,
    counts       jsonb NOT NULL,
    published_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (manifest_id, sink),
    FOREIGN KEY (manifest_id, attempt) REFERENCES attempt,
    CHECK (settled >= attempt)
);
CREATE INDEX ON publication (manifest_id) WHERE (counts ->> 'dead_lettered')::bigint > 0;
CREATE INDEX ON publication (manifest_id, settled, sink) WHERE settled > 1;

-- The published rows of each manifest by event hour; written in the transaction of the publication.
CREATE TABLE manifest_hour (
    manifest_id bigint NOT NULL REFERENCES manifest,
    pipeline    text NOT NULL,
    hour        timestamptz NOT NULL CHECK (hour = date_trunc('hour', hour, 'UTC')),
    rows        bigint NOT NULL,
    late        bigint NOT NULL,
    PRIMARY KEY (manifest_id, hour)
);
CREATE INDEX ON manifest_hour (pipeline, hour);

-- The event hours of a pipeline. Each sum is computed from all of manifest_hour, never incremented.
CREATE TABLE hour (
    pipeline    text NOT NULL REFERENCES pipeline,
    hour        timestamptz NOT NULL CHECK (hour = date_trunc('hour', hour, 'UTC')),
    revision    int NOT NULL DEFAULT 0,       -- how often the hour has become complete
    rows        bigint NOT NULL DEFAULT 0,
    late        bigint NOT NULL DEFAULT 0,
    complete_at timestamptz,                  -- NULL: not complete yet, or open again
    told        int NOT NULL DEFAULT 0,       -- the revision that DAGs of others were told
    told_before int NOT NULL DEFAULT 0,       -- the one before, while told_by is set
    told_by     text,                         -- the run of Airflow that told it; NULL: it has ended well
    PRIMARY KEY (pipeline, hour),
    CONSTRAINT hour_told_was_complete CHECK (told BETWEEN 0 AND revision),
    CONSTRAINT hour_complete_has_revision CHECK (complete_at IS NULL OR revision > 0)
);
CREATE INDEX ON hour (pipeline, hour) WHERE complete_at IS NULL;
CREATE INDEX ON hour (pipeline) WHERE told_by IS NOT NULL;

-- The revision of an hour that a sink's success files say.
CREATE TABLE success_file (
    pipeline text NOT NULL,
    sink     text NOT NULL,
    hour     timestamptz NOT NULL,
    revision int NOT NULL,
    PRIMARY KEY (pipeline, sink, hour),
    FOREIGN KEY (pipeline, hour) REFERENCES hour
);

-- What a person has accepted as gone for good: an object of a publication, or with an empty path all that the sink was
-- to show of the manifest up to this attempt. It stays when the manifest is archived, so it references no attempt.
CREATE TABLE accepted_damage (
    manifest_id bigint NOT NULL,
    sink        text NOT NULL,
    attempt     int NOT NULL,
    path        text NOT NULL,
    PRIMARY KEY (manifest_id, sink, attempt, path)
);

-- The state of each target when this database last published there, or began to append there. A target's position only
-- grows: a lower one means that it was restored from an older copy, and another identity that it is another target.
CREATE TABLE target (
    target   text PRIMARY KEY,
    identity text NOT NULL,
    position bigint NOT NULL
);

-- The last audit of a pipeline and the last that read all rows.
CREATE TABLE last_audit (
    pipeline    text NOT NULL REFERENCES pipeline,
    deep        boolean NOT NULL,
    at          timestamptz NOT NULL,
    actor       text NOT NULL,
    differences int NOT NULL CHECK (differences >= 0),
    first_differences jsonb NOT NULL,         -- a few of them: manifest_id (or null), what, next_step
    PRIMARY KEY (pipeline, deep),
    CHECK (jsonb_array_length(first_differences) <= differences)
);

-- Append-only history, written by triggers.
CREATE TABLE event (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor       text NOT NULL,
    subject     text NOT NULL,
    manifest_id bigint,
    what        jsonb NOT NULL
);
CREATE INDEX ON event (manifest_id);
CREATE INDEX ON event ((what ->> 'pipeline')) WHERE subject = 'decision';

-- Every change needs an actor.
CREATE FUNCTION record_event() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    who text := nullif(current_setting('tidemark.actor', true), '');
    now_row jsonb := to_jsonb(NEW) - 'receipt';
    old_row jsonb := CASE WHEN TG_OP = 'UPDATE' THEN to_jsonb(OLD) - 'receipt' ELSE '{}' END;
BEGIN
    IF who IS NULL THEN
        RAISE EXCEPTION 'tidemark.actor is not set' USING ERRCODE = 'TM001';
    END IF;
    INSERT INTO tidemark.event (actor, subject, manifest_id, what)
    SELECT who, TG_TABLE_NAME,
           CASE WHEN TG_TABLE_NAME = 'manifest' THEN (now_row ->> 'id')::bigint
                ELSE (now_row ->> 'manifest_id')::bigint END,
           jsonb_object_agg(key, value)
               || coalesce(jsonb_build_object('why', nullif(current_setting('tidemark.why', true), '')), '{}')
    FROM jsonb_each(now_row) WHERE value IS DISTINCT FROM old_row -> key
    HAVING count(*) > 0;
    RETURN NULL;
END $$;

CREATE TRIGGER history AFTER INSERT OR UPDATE ON pipeline FOR EACH ROW EXECUTE FUNCTION record_event();
CREATE TRIGGER history AFTER INSERT OR UPDATE ON sink FOR EACH ROW EXECUTE FUNCTION record_event();
CREATE TRIGGER history AFTER INSERT OR UPDATE ON run FOR EACH ROW EXECUTE FUNCTION record_event();
CREATE TRIGGER history AFTER INSERT OR UPDATE ON manifest FOR EACH ROW EXECUTE FUNCTION record_event();
CREATE TRIGGER history AFTER INSERT OR UPDATE ON chain FOR EACH ROW EXECUTE FUNCTION record_event();
CREATE TRIGGER history AFTER INSERT OR UPDATE ON attempt FOR EACH ROW EXECUTE FUNCTION record_event();
CREATE TRIGGER history AFTER INSERT OR UPDATE ON publication FOR EACH ROW EXECUTE FUNCTION record_event();
-- Data ranges are in their manifest, archived ones in their archive; a million of them need no second copy.
CREATE TRIGGER history AFTER INSERT ON manifest_range FOR EACH ROW WHEN (NEW.kind IN ('anchor', 'lost'))
    EXECUTE FUNCTION record_event();

CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of % is not allowed', TG_OP, TG_TABLE_NAME USING ERRCODE = 'TM002';
END $$;

CREATE TRIGGER immutable BEFORE DELETE OR UPDATE ON manifest_range FOR EACH ROW
    WHEN (coalesce(current_setting('tidemark.chain_surgery', true), '') <> 'on') EXECUTE FUNCTION refuse();
CREATE TRIGGER append_only BEFORE DELETE OR UPDATE ON event FOR EACH ROW EXECUTE FUNCTION refuse();
CREATE TRIGGER never_deleted BEFORE DELETE ON manifest FOR EACH ROW
    WHEN (coalesce(current_setting('tidemark.archiving', true), '') <> 'on') EXECUTE FUNCTION refuse();
CREATE TRIGGER never_deleted BEFORE DELETE ON attempt FOR EACH ROW
    WHEN (coalesce(current_setting('tidemark.archiving', true), '') <> 'on') EXECUTE FUNCTION refuse();
CREATE TRIGGER never_deleted BEFORE DELETE ON publication FOR EACH ROW
    WHEN (coalesce(current_setting('tidemark.archiving', true), '') <> 'on') EXECUTE FUNCTION refuse();
CREATE TRIGGER never_deleted BEFORE DELETE ON sink FOR EACH ROW EXECUTE FUNCTION refuse();
CREATE TRIGGER immutable BEFORE UPDATE OF target ON sink FOR EACH ROW EXECUTE FUNCTION refuse();
CREATE TRIGGER never_deleted BEFORE DELETE ON run FOR EACH ROW EXECUTE FUNCTION refuse();
CREATE TRIGGER immutable BEFORE DELETE OR UPDATE ON run_end FOR EACH ROW EXECUTE FUNCTION refuse();

-- Only legal state changes, and the attempt number never goes down.
CREATE FUNCTION check_edge() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.attempt < OLD.attempt OR (OLD.state = NEW.state AND OLD.state NOT IN ('running', 'done')
            AND NEW.attempt <> OLD.attempt)
        OR (OLD.state <> NEW.state AND (OLD.state, NEW.state) NOT IN (
            ('planned', 'running'), ('running', 'done'), ('running', 'failed'), ('running', 'blocked'),
            ('failed', 'running'), ('blocked', 'planned')))
    THEN
        RAISE EXCEPTION 'manifest %: % (attempt %) -> % (attempt %) is not an edge',
            OLD.id, OLD.state, OLD.attempt, NEW.state, NEW.attempt USING ERRCODE = 'TM003';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER legal_edge BEFORE UPDATE ON manifest FOR EACH ROW EXECUTE FUNCTION check_edge();

-- A revision never goes down, and only a closing makes a new one.
CREATE FUNCTION check_hour() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.revision <> OLD.revision
        AND NOT (NEW.revision = OLD.revision + 1 AND OLD.complete_at IS NULL AND NEW.complete_at IS NOT NULL)
    THEN
        RAISE EXCEPTION 'hour % of %: revision % -> % is no closing', OLD.hour, OLD.pipeline, OLD.revision, NEW.revision
            USING ERRCODE = 'TM003';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER only_closings BEFORE UPDATE ON hour FOR EACH ROW EXECUTE FUNCTION check_hour();

CREATE FUNCTION check_publication() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.attempt < OLD.attempt THEN
        RAISE EXCEPTION 'manifest %: attempt % may not replace attempt %', OLD.manifest_id, NEW.attempt, OLD.attempt
            USING ERRCODE = 'TM003';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER only_higher BEFORE UPDATE ON publication FOR EACH ROW EXECUTE FUNCTION check_publication();

-- A publication names a known sink that is not retired. The lock keeps it so until the publication commits.
CREATE FUNCTION check_sink() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM tidemark.sink s JOIN tidemark.manifest m ON m.pipeline = s.pipeline
    WHERE m.id = NEW.manifest_id AND s.name = NEW.sink AND s.retired_at IS NULL FOR SHARE OF s;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'manifest %: no sink % is known of its pipeline', NEW.manifest_id, NEW.sink
            USING ERRCODE = 'TM002';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER known_sink BEFORE INSERT OR UPDATE ON publication FOR EACH ROW EXECUTE FUNCTION check_sink();

-- The publications that count: those in sinks that nobody has retired.
CREATE VIEW standing_publication AS
SELECT p.*, s.pipeline, s.target
FROM publication p
JOIN manifest m ON m.id = p.manifest_id
JOIN sink s ON s.pipeline = m.pipeline AND s.name = p.sink AND s.retired_at IS NULL;

-- The session lock an attempt holds while its process lives (single-key advisory locks, planners use the two-key kind).
CREATE FUNCTION attempt_lock(manifest bigint, attempt int) RETURNS bigint LANGUAGE sql IMMUTABLE AS
    'SELECT manifest * 65536 + attempt % 65536';

CREATE FUNCTION is_alive(manifest bigint, attempt int) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT FROM pg_locks
        WHERE locktype = 'advisory' AND objsubid = 1 AND granted
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
          AND (classid::bigint << 32) + objid::bigint = tidemark.attempt_lock(manifest, attempt))
$$;

-- Where the log of a chain's life ended: it was truncated there (accepted by a person, or only noticed). The offsets
-- from there on hold the records of a later life, or none. NULL while the life goes on.
CREATE FUNCTION life_end(the_chain bigint) RETURNS bigint LANGUAGE sql STABLE SET search_path = tidemark AS $$
    SELECT least(c.blocked_end, CASE WHEN c.retired_at IS NOT NULL THEN coalesce((
        SELECT min(least(a.end_offset, later.blocked_end)) FROM chain later
        JOIN manifest_range a ON a.chain_id = later.id AND a.kind = 'anchor'
        WHERE later.pipeline = c.pipeline AND later.topic_id = c.topic_id AND later.partition = c.partition
          AND later.incarnation > c.incarnation), 0) END)
    FROM chain c WHERE c.id = the_chain
$$;

-- Ranges that reach above the end of their life. The cheap conditions come first: nearly every chain goes on.
CREATE VIEW outlived_range AS
SELECT r.manifest_id, c.topic, c.partition, r.start_offset, r.end_offset, tidemark.life_end(c.id) AS life_end,
       EXISTS (SELECT FROM chain n WHERE n.pipeline = c.pipeline AND n.topic_id = c.topic_id
               AND n.partition = c.partition AND n.blocked_end IS NOT NULL) AS noticed
FROM manifest_range r
JOIN chain c ON c.id = r.chain_id
WHERE (c.blocked_end IS NOT NULL OR c.retired_at IS NOT NULL) AND r.end_offset > tidemark.life_end(c.id);

-- Attempts whose receipt names a retired sink: it may have left their records in a target that is used again.
CREATE VIEW attempt_of_retired_sink AS
SELECT a.manifest_id, a.attempt
FROM attempt a JOIN manifest m ON m.id = a.manifest_id
WHERE EXISTS (SELECT FROM sink s WHERE s.pipeline = m.pipeline AND s.retired_at IS NOT NULL
              AND a.receipt -> 'sinks' ? s.name);

-- Sinks that a person has given up for a manifest, unless something newer is published there.
CREATE VIEW given_up AS
SELECT d.manifest_id, d.sink FROM accepted_damage d
LEFT JOIN standing_publication p ON p.manifest_id = d.manifest_id AND p.sink = d.sink
WHERE d.path = '' AND d.attempt >= coalesce(p.attempt, 0);

CREATE VIEW manifest_view AS
SELECT m.id, m.pipeline, r.run_key, m.slice, m.state, m.attempt, m.reason, m.dag_run, m.created_at, m.done_at,
       tidemark.is_alive(m.id, m.attempt) AS alive,
       coalesce(ranges.retired, false) AS retired,
       coalesce(ranges.list, '[]') AS ranges,
       coalesce(publications.list, '[]') AS publications,
       coalesce(lacking.sinks, '{}') AS unfilled,
       coalesce(accepted.sinks, '{}') AS given_up,
       NULL::jsonb AS archived
FROM manifest m
JOIN run r ON r.id = m.run_id
LEFT JOIN LATERAL (
    SELECT jsonb_agg(jsonb_build_object(
               'at', jsonb_build_object('topic', c.topic, 'topic_id', c.topic_id, 'partition', c.partition),
               'start', g.start_offset, 'end', g.end_offset, 'incarnation', c.incarnation, 'anchor', a.end_offset)
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

-- Only these functions may do what the trigger "immutable" forbids. The constraints of the chain apply to them too.

-- Gives up offsets [lost_start, lost_end): from the chain's end on they become a lost range, and data ranges without a
-- publication are split into lost and data. Returns the manifests that lost some.
CREATE FUNCTION accept_loss(the_chain bigint, lost_start bigint, lost_end bigint) RETURNS SETOF bigint
LANGUAGE plpgsql SET search_path = tidemark AS $$
DECLARE
    r manifest_range;
    chain_end bigint := (SELECT max(end_offset) FROM manifest_range WHERE chain_id = the_chain);
BEGIN
    PERFORM set_config('tidemark.chain_surgery', 'on', true);
    FOR r IN
        SELECT g.* FROM manifest_range g
        WHERE g.chain_id = the_chain AND g.kind = 'data' AND g.start_offset < lost_end AND g.end_offset > lost_start
          AND NOT EXISTS (SELECT FROM standing_publication p WHERE p.manifest_id = g.manifest_id)
        ORDER BY g.start_offset
    LOOP
        DELETE FROM manifest_range WHERE chain_id = the_chain AND start_offset = r.start_offset;
        INSERT INTO manifest_range (chain_id, start_offset, end_offset, kind, manifest_id)
        SELECT the_chain, piece.s, piece.e, piece.k::range_kind, piece.m
        FROM (VALUES (r.start_offset, least(r.end_offset, lost_start), 'data', r.manifest_id),
                     (greatest(r.start_offset, lost_start), least(r.end_offset, lost_end), 'lost', NULL),
                     (greatest(r.start_offset, lost_end), r.end_offset, 'data', r.manifest_id)) AS piece (s, e, k, m)
        WHERE piece.s < piece.e;
        RETURN NEXT r.manifest_id;
    END LOOP;
    PERFORM set_config('tidemark.chain_surgery', '', true);
    IF lost_end > chain_end THEN
        INSERT INTO manifest_range (chain_id, start_offset, end_offset, kind)
        VALUES (the_chain, chain_end, lost_end, 'lost');
    END IF;
END $$;

-- Moves the anchor back to new_anchor; the caller must insert ranges for [new_anchor, old anchor) in its transaction.
CREATE FUNCTION extend_back(the_chain bigint, new_anchor bigint) RETURNS void
LANGUAGE plpgsql SET search_path = tidemark AS $$
BEGIN
    PERFORM set_config('tidemark.chain_surgery', 'on', true);
    UPDATE manifest_range SET end_offset = new_anchor
    WHERE chain_id = the_chain AND kind = 'anchor' AND end_offset > new_anchor;
    PERFORM set_config('tidemark.chain_surgery', '', true);
END $$;

-- A pipeline gets another name (tidemark rename). A name is given once: nobody plans by a former name any more.
CREATE TABLE former_name (
    name       text PRIMARY KEY,
    pipeline   text NOT NULL REFERENCES pipeline,   -- the name that it has now
    until      timestamptz NOT NULL DEFAULT now(),
    in_targets boolean NOT NULL DEFAULT true        -- the targets have the former name still
);

CREATE FUNCTION refuse_former_name() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM tidemark.former_name f WHERE f.name = NEW.name) THEN
        RAISE EXCEPTION 'pipeline % was renamed', NEW.name USING ERRCODE = 'TM002';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER given_once BEFORE INSERT ON pipeline FOR EACH ROW EXECUTE FUNCTION refuse_former_name();

-- The only way to change the name of a pipeline: every row that has it gets the new one, except the history. It may
-- become again a name that the pipeline had before.
CREATE FUNCTION rename_pipeline(old_name text, new_name text) RETURNS void
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

-- The archive: archive() folds the oldest ranges of each chain into one of kind "archived" that starts at the anchor,
-- and moves their manifests to tables that plans, attempts and retries do not read (docs/adr/0024).

-- What a person archived, who, when and why, with the proof of it: counts, and sums of digests, in the tables below.
CREATE TABLE archive (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pipeline       text NOT NULL REFERENCES pipeline,
    before         timestamptz NOT NULL,      -- nothing was done to what is archived at this time or later
    actor          text NOT NULL,
    why            text NOT NULL,
    at             timestamptz NOT NULL DEFAULT now(),
    manifests      bigint NOT NULL DEFAULT 0, -- it grows with each batch
    first_manifest bigint,
    last_manifest  bigint,
    done_from      timestamptz,               -- when the manifests were done
    done_to        timestamptz
);
CREATE INDEX ON archive (pipeline);

CREATE TABLE archive_sink (
    archive_id bigint NOT NULL REFERENCES archive,
    sink       text NOT NULL,
    manifests  bigint NOT NULL,
    counts     jsonb NOT NULL,                -- the sum of the publications' counts
    digest     text NOT NULL,                 -- the sum of their digests
    PRIMARY KEY (archive_id, sink)
);

-- Offsets of a chain that were archived together: end - start = read + lost + invisible.
CREATE TABLE archive_range (
    archive_id        bigint NOT NULL REFERENCES archive,
    chain_id          bigint NOT NULL REFERENCES chain,
    start_offset      bigint NOT NULL,
    end_offset        bigint NOT NULL,
    manifests         bigint NOT NULL,
    read              bigint NOT NULL,
    lost              bigint NOT NULL,
    lost_starts       bigint[] NOT NULL,      -- the ranges of kind "lost" between them
    lost_ends         bigint[] NOT NULL,
    last_offset       bigint,                 -- the last record that was read, as its receipt has it: plans compare it
    last_timestamp_ms bigint,
    last_digest       text,
    last_epoch        int,
    PRIMARY KEY (chain_id, start_offset),
    CHECK (start_offset < end_offset)
);

CREATE TABLE archived_manifest (
    id         bigint PRIMARY KEY,
    archive_id bigint NOT NULL REFERENCES archive,
    pipeline   text NOT NULL REFERENCES pipeline,
    run_id     bigint NOT NULL REFERENCES run,
    slice      int NOT NULL,
    attempt    int NOT NULL,
    dag_run    text,
    created_at timestamptz NOT NULL,
    done_at    timestamptz NOT NULL,
    chains     bigint[] NOT NULL,             -- its ranges
    starts     bigint[] NOT NULL,
    ends       bigint[] NOT NULL
);
CREATE INDEX ON archived_manifest (pipeline, id);
CREATE INDEX ON archived_manifest (archive_id);

CREATE TABLE archived_publication (
    manifest_id  bigint NOT NULL REFERENCES archived_manifest,
    sink         text NOT NULL,
    attempt      int NOT NULL,
    settled      int NOT NULL,
    digest       text NOT NULL,
    counts       jsonb NOT NULL,
    published_at timestamptz NOT NULL,
    PRIMARY KEY (manifest_id, sink)
);

-- The attempts that readers see; the others are gone. The receipt names the objects and makes a lost record again.
CREATE TABLE archived_attempt (
    manifest_id bigint NOT NULL REFERENCES archived_manifest,
    attempt     int NOT NULL,
    fingerprint text NOT NULL,
    actor       text NOT NULL,
    receipt     jsonb NOT NULL,
    note        text,
    started_at  timestamptz NOT NULL,
    ended_at    timestamptz,
    PRIMARY KEY (manifest_id, attempt)
);

-- The sum of the archived manifests' rows by event hour.
CREATE TABLE archived_hour (
    pipeline text NOT NULL,
    hour     timestamptz NOT NULL,
    rows     bigint NOT NULL,
    late     bigint NOT NULL,
    PRIMARY KEY (pipeline, hour)
);

CREATE TRIGGER history AFTER INSERT OR UPDATE ON archive FOR EACH ROW EXECUTE FUNCTION record_event();
CREATE TRIGGER immutable BEFORE DELETE OR UPDATE ON archive FOR EACH ROW
    WHEN (coalesce(current_setting('tidemark.archiving', true), '') <> 'on') EXECUTE FUNCTION refuse();
CREATE TRIGGER immutable BEFORE DELETE OR UPDATE ON archive_range FOR EACH ROW
    WHEN (coalesce(current_setting('tidemark.archiving', true), '') <> 'on') EXECUTE FUNCTION refuse();
CREATE TRIGGER never_deleted BEFORE DELETE ON archive_sink FOR EACH ROW EXECUTE FUNCTION refuse();
CREATE TRIGGER immutable BEFORE DELETE OR UPDATE ON archived_manifest FOR EACH ROW
    WHEN (coalesce(current_setting('tidemark.archiving', true), '') <> 'on') EXECUTE FUNCTION refuse();
CREATE TRIGGER never_deleted BEFORE DELETE ON archived_publication FOR EACH ROW EXECUTE FUNCTION refuse();
CREATE TRIGGER never_deleted BEFORE DELETE ON archived_attempt FOR EACH ROW EXECUTE FUNCTION refuse();

-- Manifests, whether they are archived or not.
CREATE VIEW any_manifest AS
SELECT id, pipeline FROM manifest UNION ALL SELECT id, pipeline FROM archived_manifest;

-- Ranges of kind "lost", and those that were folded into archives.
CREATE VIEW lost_range AS
SELECT chain_id, start_offset, end_offset FROM manifest_range WHERE kind = 'lost'
UNION ALL
SELECT a.chain_id, old.start_offset, old.end_offset
FROM archive_range a CROSS JOIN LATERAL unnest(a.lost_starts, a.lost_ends) AS old (start_offset, end_offset);

-- A receipt with another name of a sink.
CREATE FUNCTION with_sink_renamed(receipt jsonb, old_name text, new_name text) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT receipt || jsonb_build_object(
        'sinks', (
            SELECT jsonb_agg(CASE s.name WHEN old_name THEN new_name ELSE s.name END ORDER BY s.place)
            FROM jsonb_array_elements_text(receipt -> 'sinks') WITH ORDINALITY AS s (name, place)),
        'objects', (
            SELECT coalesce(jsonb_agg(CASE o.part ->> 'sink' WHEN old_name
                THEN o.part || jsonb_build_object('sink', new_name) ELSE o.part END ORDER BY o.place), '[]')
            FROM jsonb_array_elements(receipt -> 'objects') WITH ORDINALITY AS o (part, place)))
$$;

-- Archived publications that count, as standing_publication has the others.
CREATE VIEW standing_archived AS
SELECT p.*, s.pipeline, s.target
FROM archived_publication p
JOIN archived_manifest m ON m.id = p.manifest_id
JOIN sink s ON s.pipeline = m.pipeline AND s.name = p.sink AND s.retired_at IS NULL;

-- As manifest_view, of what is archived.
CREATE VIEW archived_view AS
SELECT m.id, m.pipeline, r.run_key, m.slice, 'done'::manifest_state AS state, m.attempt, NULL::text AS reason,
       m.dag_run, m.created_at, m.done_at, false AS alive, coalesce(ranges.retired, false) AS retired,
       coalesce(ranges.list, '[]') AS ranges, coalesce(publications.list, '[]') AS publications,
       coalesce(lacking.sinks, '{}') AS unfilled, coalesce(accepted.sinks, '{}') AS given_up,
       jsonb_build_object('archive', a.id, 'at', a.at, 'by', a.actor, 'why', a.why) AS archived
FROM archived_manifest m
JOIN run r ON r.id = m.run_id
JOIN archive a ON a.id = m.archive_id
LEFT JOIN LATERAL (
    SELECT jsonb_agg(jsonb_build_object(
               'at', jsonb_build_object('topic', c.topic, 'topic_id', c.topic_id, 'partition', c.partition),
               'start', g.start_offset, 'end', g.end_offset, 'incarnation', c.incarnation, 'anchor', anchor.end_offset)
               ORDER BY c.topic, c.partition, g.start_offset) AS list,
           bool_or(c.retired_at IS NOT NULL) AS retired
    FROM unnest(m.chains, m.starts, m.ends) AS g (chain_id, start_offset, end_offset)
    JOIN chain c ON c.id = g.chain_id
    JOIN manifest_range anchor ON anchor.chain_id = g.chain_id AND anchor.kind = 'anchor') ranges ON true
LEFT JOIN LATERAL (
    SELECT jsonb_agg(to_jsonb(p) - '{manifest_id,pipeline,target}'::text[] || '{"behind": false}'
                     ORDER BY p.sink) AS list
    FROM standing_archived p WHERE p.manifest_id = m.id) publications ON true
LEFT JOIN LATERAL (
    SELECT array_agg(d.sink ORDER BY d.sink) AS sinks
    FROM accepted_damage d LEFT JOIN standing_archived p ON p.manifest_id = d.manifest_id AND p.sink = d.sink
    WHERE d.manifest_id = m.id AND d.path = '' AND d.attempt >= coalesce(p.attempt, 0)) accepted ON true
LEFT JOIN LATERAL (
    SELECT array_agg(s.name ORDER BY s.name) AS sinks FROM sink s
    WHERE s.pipeline = m.pipeline AND s.retired_at IS NULL AND s.name <> ALL (coalesce(accepted.sinks, '{}'))
      AND NOT EXISTS (SELECT FROM archived_publication p WHERE p.manifest_id = m.id AND p.sink = s.name)) lacking
    ON true;

-- The sum of digests, modulo 2^64 in each of their three parts, as digest.py adds them.
CREATE FUNCTION sum_of_digests(digests text[]) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(string_agg(lpad(to_hex((CASE WHEN part.total >= 9223372036854775808
                                            THEN part.total - 18446744073709551616 ELSE part.total END)::bigint),
                                    16, '0'), '' ORDER BY part.place), repeat('0', 48))
    FROM (SELECT word.place, mod(sum(CASE WHEN word.number < 0 THEN word.number + 18446744073709551616
                                     ELSE word.number END), 18446744073709551616) AS total
          FROM (SELECT place, ('x' || substr(digest, 1 + 16 * place, 16))::bit(64)::bigint::numeric AS number
                FROM unnest(digests) AS digest CROSS JOIN generate_series(0, 2) AS place) word
          GROUP BY word.place) part
$$;

CREATE FUNCTION sum_of_counts(every jsonb[]) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(jsonb_object_agg(term.key, term.total), '{}')
    FROM (SELECT key, sum(value::bigint)::bigint AS total
          FROM unnest(every) AS counts CROSS JOIN jsonb_each_text(counts) GROUP BY key) term
$$;

-- Why a manifest may not be archived; NULL when it may. Anything that was done to it counts as touching it.
CREATE FUNCTION why_not_archived(the_manifest bigint, before timestamptz) RETURNS text
LANGUAGE sql STABLE SET search_path = tidemark AS $$
    SELECT CASE
        WHEN m.state <> 'done' THEN 'unfinished'
        WHEN m.done_at >= before THEN 'recent'
        WHEN EXISTS (SELECT FROM attempt a WHERE a.manifest_id = m.id AND a.state = 'running') THEN 'open'
        WHEN EXISTS (
            SELECT FROM sink s WHERE s.pipeline = m.pipeline AND s.retired_at IS NULL
              AND NOT EXISTS (SELECT FROM publication p WHERE p.manifest_id = m.id AND p.sink = s.name)
              AND NOT EXISTS (SELECT FROM given_up g WHERE g.manifest_id = m.id AND g.sink = s.name)) THEN 'unfilled'
        WHEN EXISTS (
            SELECT FROM standing_publication p
            JOIN standing_publication other ON other.manifest_id = p.manifest_id AND other.settled > p.settled
            JOIN attempt a ON a.manifest_id = p.manifest_id AND a.attempt = other.settled AND p.sink = ANY (a.sinks)
            WHERE p.manifest_id = m.id
              AND NOT EXISTS (SELECT FROM given_up g WHERE g.manifest_id = m.id AND g.sink = p.sink)) THEN 'behind'
        WHEN EXISTS (SELECT FROM attempt a WHERE a.manifest_id = m.id
                     AND greatest(a.started_at, a.ended_at) >= before)
            OR EXISTS (SELECT FROM publication p WHERE p.manifest_id = m.id AND p.published_at >= before)
            THEN 'replayed' END
    FROM manifest m WHERE m.id = the_manifest
$$;

-- One batch: folds all ranges of these manifests, with the lost ranges between them, and adds their proof to an
-- archive. Each manifest must be allowed to be archived, and below their ends there must be no range of another one.
CREATE FUNCTION archive(the_archive bigint, ids bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = tidemark AS $$
DECLARE
    its archive;
    refused record;
    part record;
    tops_of bigint[];
    tops bigint[];
BEGIN
    SELECT * INTO STRICT its FROM archive WHERE id = the_archive;
    PERFORM FROM manifest WHERE id = ANY (ids) ORDER BY id FOR UPDATE;  -- no attempt can start at them from here on
    SELECT given.id, CASE WHEN m.pipeline = its.pipeline THEN why_not_archived(m.id, its.before)
                     ELSE 'not of the pipeline' END AS why INTO refused
    FROM unnest(ids) AS given (id) LEFT JOIN manifest m ON m.id = given.id
    WHERE m.pipeline IS DISTINCT FROM its.pipeline OR why_not_archived(m.id, its.before) IS NOT NULL LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'manifest % may not be archived: %', refused.id, refused.why USING ERRCODE = 'TM002';
    END IF;

    -- Up to where each chain is folded: what was archived before may follow, after the anchor has moved back.
    SELECT array_agg(top.chain_id), array_agg(coalesce(older.end_offset, top.end_offset)) INTO tops_of, tops
    FROM (SELECT chain_id, max(end_offset) AS end_offset FROM manifest_range WHERE manifest_id = ANY (ids)
          GROUP BY chain_id) top
    LEFT JOIN manifest_range older ON older.chain_id = top.chain_id AND older.start_offset = top.end_offset
        AND older.kind = 'archived';
    SELECT g.manifest_id AS id, g.chain_id INTO refused
    FROM unnest(tops_of, tops) AS top (chain_id, end_offset)
    JOIN manifest_range g ON g.chain_id = top.chain_id AND g.end_offset <= top.end_offset
    WHERE g.kind = 'data' AND g.manifest_id <> ALL (ids) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'chain % cannot be folded past manifest %', refused.chain_id, refused.id
            USING ERRCODE = 'TM002';
    END IF;
    PERFORM set_config('tidemark.archiving', 'on', true), set_config('tidemark.chain_surgery', 'on', true);

    INSERT INTO archived_manifest
    SELECT m.id, its.id, m.pipeline, m.run_id, m.slice, m.attempt, m.dag_run, m.created_at, m.done_at,
           array_agg(g.chain_id ORDER BY g.chain_id, g.start_offset),
           array_agg(g.start_offset ORDER BY g.chain_id, g.start_offset),
           array_agg(g.end_offset ORDER BY g.chain_id, g.start_offset)
    FROM manifest m JOIN manifest_range g ON g.manifest_id = m.id WHERE m.id = ANY (ids) GROUP BY m.id;
    INSERT INTO archived_publication
    SELECT manifest_id, sink, attempt, settled, digest, counts, published_at FROM publication
    WHERE manifest_id = ANY (ids);
    INSERT INTO archived_attempt
    SELECT a.manifest_id, a.attempt, a.fingerprint, a.actor, a.receipt, a.note, a.started_at, a.ended_at
    FROM attempt a WHERE a.manifest_id = ANY (ids) AND EXISTS (
        SELECT FROM publication p WHERE p.manifest_id = a.manifest_id AND p.attempt = a.attempt);
    INSERT INTO archived_hour AS kept (pipeline, hour, rows, late)
    SELECT pipeline, hour, sum(rows), sum(late) FROM manifest_hour WHERE manifest_id = ANY (ids) GROUP BY pipeline, hour
    ON CONFLICT (pipeline, hour) DO UPDATE SET rows = kept.rows + EXCLUDED.rows, late = kept.late + EXCLUDED.late;

    UPDATE archive a SET manifests = a.manifests + added.manifests,
        first_manifest = least(a.first_manifest, added.first),
        last_manifest = greatest(a.last_manifest, added.last), done_from = least(a.done_from, added.done_from),
        done_to = greatest(a.done_to, added.done_to)
    FROM (SELECT count(*) AS manifests, min(id) AS first, max(id) AS last, min(done_at) AS done_from,
                 max(done_at) AS done_to FROM manifest WHERE id = ANY (ids)) added
    WHERE a.id = its.id;
    INSERT INTO archive_sink AS kept (archive_id, sink, manifests, counts, digest)
    SELECT its.id, sink, count(*), sum_of_counts(array_agg(counts)), sum_of_digests(array_agg(digest))
    FROM publication WHERE manifest_id = ANY (ids) GROUP BY sink
    ON CONFLICT (archive_id, sink) DO UPDATE SET manifests = kept.manifests + EXCLUDED.manifests,
        counts = sum_of_counts(ARRAY[kept.counts, EXCLUDED.counts]),
        digest = sum_of_digests(ARRAY[kept.digest, EXCLUDED.digest]);
    FOR part IN
        WITH counted AS MATERIALIZED (
            SELECT a.manifest_id, count ->> 'topic' AS topic, (count ->> 'partition')::int AS partition,
                   (count ->> 'read')::bigint AS read, count
            FROM (SELECT manifest_id, max(attempt) AS attempt FROM publication WHERE manifest_id = ANY (ids)
                  GROUP BY manifest_id) shown
            JOIN attempt a ON a.manifest_id = shown.manifest_id AND a.attempt = shown.attempt
            CROSS JOIN LATERAL jsonb_array_elements(a.receipt -> 'partitions') AS count),
        folded AS (
            SELECT g.*, lag(g.end_offset) OVER chain IS DISTINCT FROM g.start_offset AS begins,
                   row_number() OVER (PARTITION BY g.chain_id, g.manifest_id ORDER BY g.start_offset) = 1 AS is_first
            FROM unnest(tops_of, tops) AS top (chain_id, end_offset)
            JOIN manifest_range g ON g.chain_id = top.chain_id AND g.end_offset <= top.end_offset
            WHERE g.kind IN ('data', 'lost') WINDOW chain AS (PARTITION BY g.chain_id ORDER BY g.start_offset)),
        numbered AS (
            SELECT *, count(*) FILTER (WHERE begins) OVER (PARTITION BY chain_id ORDER BY start_offset) AS number
            FROM folded)
        SELECT n.chain_id, min(n.start_offset) AS start_offset, max(n.end_offset) AS end_offset,
               count(DISTINCT n.manifest_id) AS manifests,
               coalesce(sum(k.read) FILTER (WHERE n.is_first), 0) AS read,
               coalesce(sum(n.end_offset - n.start_offset) FILTER (WHERE n.kind = 'lost'), 0) AS lost,
               coalesce(array_agg(n.start_offset ORDER BY n.start_offset)
                        FILTER (WHERE n.kind = 'lost'), '{}') AS lost_starts,
               coalesce(array_agg(n.end_offset ORDER BY n.start_offset)
                        FILTER (WHERE n.kind = 'lost'), '{}') AS lost_ends,
               (array_agg(k.count ORDER BY (k.count ->> 'last')::bigint DESC)
                   FILTER (WHERE k.count ->> 'last_digest' IS NOT NULL))[1] AS last
        FROM numbered n JOIN chain c ON c.id = n.chain_id
        LEFT JOIN counted k ON k.manifest_id = n.manifest_id AND k.topic = c.topic AND k.partition = c.partition
        GROUP BY n.chain_id, n.number ORDER BY n.chain_id, n.number
    LOOP
        UPDATE archive_range r SET end_offset = part.end_offset, manifests = r.manifests + part.manifests,
            read = r.read + part.read, lost = r.lost + part.lost, lost_starts = r.lost_starts || part.lost_starts,
            lost_ends = r.lost_ends || part.lost_ends,
            last_offset = coalesce((part.last ->> 'last')::bigint, r.last_offset),
            last_timestamp_ms = CASE WHEN part.last IS NULL THEN r.last_timestamp_ms
                                ELSE (part.last ->> 'last_timestamp_ms')::bigint END,
            last_digest = coalesce(part.last ->> 'last_digest', r.last_digest),
            last_epoch = CASE WHEN part.last IS NULL THEN r.last_epoch ELSE (part.last ->> 'last_epoch')::int END
        WHERE r.archive_id = its.id AND r.chain_id = part.chain_id AND r.end_offset = part.start_offset;
        CONTINUE WHEN FOUND;
        INSERT INTO archive_range VALUES (
            its.id, part.chain_id, part.start_offset, part.end_offset, part.manifests, part.read, part.lost,
            part.lost_starts, part.lost_ends, (part.last ->> 'last')::bigint,
            (part.last ->> 'last_timestamp_ms')::bigint, part.last ->> 'last_digest',
            (part.last ->> 'last_epoch')::int);
    END LOOP;

    DELETE FROM manifest_hour WHERE manifest_id = ANY (ids);
    DELETE FROM publication WHERE manifest_id = ANY (ids);
    DELETE FROM attempt WHERE manifest_id = ANY (ids);
    DELETE FROM manifest_range g USING unnest(tops_of, tops) AS top (chain_id, end_offset)
    WHERE g.chain_id = top.chain_id AND g.end_offset <= top.end_offset AND g.kind <> 'anchor';
    INSERT INTO manifest_range (chain_id, start_offset, end_offset, kind)
    SELECT top.chain_id, anchor.end_offset, top.end_offset, 'archived'
    FROM unnest(tops_of, tops) AS top (chain_id, end_offset)
    JOIN manifest_range anchor ON anchor.chain_id = top.chain_id AND anchor.kind = 'anchor';
    DELETE FROM manifest WHERE id = ANY (ids);
    PERFORM set_config('tidemark.archiving', '', true), set_config('tidemark.chain_surgery', '', true);
END $$;
