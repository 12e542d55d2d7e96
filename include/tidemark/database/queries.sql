-- One block per statement, used by the parts of ManifestDatabase. Parameters are psycopg's %(name)s.

-- name: set_actor
-- The transaction of a decision (it has a why) has no time limit, because it asks targets meanwhile.
SELECT set_config('tidemark.actor', %(actor)s, true), set_config('tidemark.why', %(why)s, true),
       set_config('idle_in_transaction_session_timeout', CASE %(why)s::text
           WHEN '' THEN current_setting('idle_in_transaction_session_timeout') ELSE '0' END, true);

-- name: database_id
SELECT id::text AS id FROM database;

-- name: lock_planning
SELECT pg_advisory_xact_lock(1414089812, hashtext(%(pipeline_name)s));

-- name: find_run
SELECT id, run_key, kind::text AS kind, cut_at, reached, manifests, covered_by, notes, planned_at
FROM run WHERE pipeline = %(pipeline_name)s AND run_key = %(run_key)s;

-- name: remember_pipeline
INSERT INTO pipeline (name) VALUES (%(pipeline_name)s) ON CONFLICT DO NOTHING;

-- name: stream_folders
SELECT pipeline, sink, topic, folders, shared_with, success_files FROM stream_folders WHERE topic = ANY (%(topics)s)
ORDER BY pipeline, sink, topic, folders;

-- name: lock_folders
SELECT pg_advisory_xact_lock(1414089813, 0);

-- name: remember_folders
INSERT INTO stream_folders (pipeline, sink, topic, folders, shared_with, success_files)
VALUES (%(pipeline)s, %(sink)s, %(topic)s, %(folders)s, %(shared_with)s, %(success_files)s)
ON CONFLICT (pipeline, sink, topic, folders) DO UPDATE
SET shared_with = EXCLUDED.shared_with, success_files = EXCLUDED.success_files;

-- name: remember_sinks
INSERT INTO sink (pipeline, name, target, row_order)
SELECT %(pipeline_name)s, * FROM unnest(%(names)s::text[], %(targets)s::text[], %(orders)s::text[])
ON CONFLICT (pipeline, name) DO NOTHING;

-- name: pin_record_key
UPDATE sink SET record_key = %(columns)s
WHERE pipeline = %(pipeline_name)s AND name = %(sink)s AND record_key IS NULL;

-- name: is_planned
SELECT EXISTS (SELECT FROM pipeline WHERE name = %(pipeline_name)s) AS known;

-- name: cluster
SELECT cluster FROM pipeline WHERE name = %(pipeline_name)s;

-- name: remember_cluster
UPDATE pipeline SET cluster = %(cluster)s WHERE name = %(pipeline_name)s AND cluster IS DISTINCT FROM %(cluster)s;

-- name: sinks
SELECT name, target, known_since, renamed_from, retired_at, row_order, record_key FROM sink
WHERE pipeline = %(pipeline_name)s ORDER BY name;

-- name: lock_manifests
SELECT id FROM manifest WHERE pipeline = %(pipeline_name)s ORDER BY id FOR UPDATE;

-- name: with_open_attempts
SELECT DISTINCT m.id FROM manifest m JOIN attempt a ON a.manifest_id = m.id AND a.state = 'running'
WHERE m.pipeline = %(pipeline_name)s ORDER BY m.id;

-- name: fence_open_attempts
-- Takes the next attempt number without starting an attempt: a paused process with a lower number is then fenced.
WITH numbered AS (
    UPDATE manifest SET attempt = attempt + 1
    WHERE id = ANY (%(manifests)s) AND state IN ('running', 'done') RETURNING id, attempt),
lower AS (
    UPDATE attempt a SET state = 'fenced', ended_at = now(), error = %(reason)s FROM numbered n
    WHERE a.manifest_id = n.id AND a.state = 'running')
INSERT INTO attempt (manifest_id, attempt, state, fingerprint, actor, error, ended_at)
SELECT id, attempt, 'fenced', '', %(actor)s, %(reason)s, now() FROM numbered;

-- name: rename_sink
UPDATE sink SET name = %(new)s, renamed_from = name
WHERE pipeline = %(pipeline_name)s AND name = %(old)s AND retired_at IS NULL;

-- name: rename_publications
UPDATE publication p SET sink = %(new)s FROM manifest m
WHERE m.id = p.manifest_id AND m.pipeline = %(pipeline_name)s AND p.sink = %(old)s;

-- name: rename_in_attempts
UPDATE attempt a
SET sinks = array_replace(a.sinks, %(old)s::text, %(new)s::text),
    taken_back = array_replace(a.taken_back, %(old)s::text, %(new)s::text),
    receipt = with_sink_renamed(a.receipt, %(old)s, %(new)s)
FROM manifest m
WHERE m.id = a.manifest_id AND m.pipeline = %(pipeline_name)s
  AND (a.receipt -> 'sinks' ? %(old)s OR %(old)s::text = ANY (a.sinks || a.taken_back));

-- name: rename_in_fingerprints
-- The code has not changed, so each fingerprint with the old name becomes the one with the new name. The part behind a
-- plus (pinned schemas) stays.
UPDATE attempt a SET fingerprint = f.after || substr(a.fingerprint, length(f.before) + 1)
FROM manifest m, unnest(%(before)s::text[], %(after)s::text[]) AS f (before, after)
WHERE m.id = a.manifest_id AND m.pipeline = %(pipeline_name)s AND split_part(a.fingerprint, '+', 1) = f.before;

-- name: rename_in_damage
UPDATE accepted_damage d SET sink = %(new)s
FROM manifest m
WHERE m.id = d.manifest_id AND m.pipeline = %(pipeline_name)s AND d.sink = %(old)s;

-- name: rename_in_folders
UPDATE stream_folders SET sink = %(new)s WHERE pipeline = %(pipeline_name)s AND sink = %(old)s;

-- name: end_rename
UPDATE sink SET renamed_from = NULL WHERE pipeline = %(pipeline_name)s AND name = %(new)s;

-- name: retire_sink
UPDATE sink SET retired_at = now() WHERE pipeline = %(pipeline_name)s AND name = %(sink)s AND retired_at IS NULL;

-- name: counted_by
-- The manifests whose hours count the rows of this sink: no other current sink shows as new an attempt.
SELECT p.manifest_id AS id FROM publication p JOIN manifest m ON m.id = p.manifest_id
WHERE m.pipeline = %(pipeline_name)s AND p.sink = %(sink)s AND NOT EXISTS (
    SELECT FROM standing_publication o
    WHERE o.manifest_id = p.manifest_id AND o.sink <> p.sink AND o.attempt >= p.attempt)
ORDER BY 1;

-- name: published_in
-- The manifests with a publication in a sink, and whether no other current sink has one.
SELECT p.manifest_id AS id, NOT EXISTS (
    SELECT FROM standing_publication o WHERE o.manifest_id = p.manifest_id AND o.sink <> p.sink) AS alone
FROM standing_publication p
WHERE p.pipeline = %(pipeline_name)s AND p.sink = %(sink)s
ORDER BY 1;

-- name: lacking
-- The done manifests without a publication in a sink. Reads only the parts of the ids where the sums show some.
SELECT m.id FROM parts_lacking(%(pipeline_name)s, %(sink)s) AS part
CROSS JOIN LATERAL (
    SELECT m.id FROM manifest m
    WHERE m.pipeline = %(pipeline_name)s AND m.state = 'done' AND m.id >= part.first_id AND m.id < part.end_id
      AND NOT EXISTS (SELECT FROM publication p WHERE p.manifest_id = m.id AND p.sink = %(sink)s)
      AND NOT EXISTS (SELECT FROM given_up g WHERE g.manifest_id = m.id AND g.sink = %(sink)s)) m
ORDER BY m.id;

-- name: left_out
-- The manifests that were done without a sink that was known by then: the pipeline file did not have it for a while.
SELECT s.name AS sink, m.id FROM sink s CROSS JOIN LATERAL (
    SELECT m.id FROM parts_lacking(%(pipeline_name)s, s.name) AS part
    JOIN manifest m ON m.id >= part.first_id AND m.id < part.end_id
    WHERE m.pipeline = %(pipeline_name)s AND m.state = 'done' AND m.done_at > s.known_since
      AND NOT EXISTS (SELECT FROM publication p WHERE p.manifest_id = m.id AND p.sink = s.name)
      AND NOT EXISTS (SELECT FROM given_up g WHERE g.manifest_id = m.id AND g.sink = s.name)) m
WHERE s.pipeline = %(pipeline_name)s AND s.retired_at IS NULL ORDER BY s.name, m.id;

-- name: published_by_retired_sinks
-- What retired sinks have published. Nothing removes it, even if another sink uses the target again.
SELECT s.target AS root, p.manifest_id, p.attempt, coalesce((
    SELECT array_agg(o.object ->> 'path') FROM attempt a
    CROSS JOIN LATERAL jsonb_array_elements(a.receipt -> 'objects') AS o (object)
    WHERE a.manifest_id = p.manifest_id AND a.attempt = p.attempt AND o.object ->> 'sink' = s.name), '{}') AS paths
FROM sink s JOIN publication p ON p.sink = s.name JOIN manifest m ON m.id = p.manifest_id AND m.pipeline = s.pipeline
WHERE s.pipeline = %(pipeline_name)s AND s.retired_at IS NOT NULL;

-- name: has_published
SELECT 1 AS found FROM manifest m JOIN publication p ON p.manifest_id = m.id
WHERE m.pipeline = %(pipeline_name)s AND p.sink = %(sink)s LIMIT 1;

-- name: generations
-- The log generation that each range of a manifest belongs to.
SELECT c.topic, c.partition, c.generation
FROM manifest_range r JOIN chain c ON c.id = r.chain_id WHERE r.manifest_id = %(manifest_id)s;

-- name: chains
-- Finds the end of each chain with one index probe, however long its history is.
SELECT DISTINCT ON (c.topic, c.partition)
       c.id, c.topic, c.topic_id, c.partition, c.generation, c.blocked, c.blocked_end,
       latest.end_offset, anchor.end_offset AS anchor
FROM chain c
CROSS JOIN LATERAL (
    SELECT r.end_offset FROM manifest_range r WHERE r.chain_id = c.id ORDER BY r.end_offset DESC LIMIT 1) latest
JOIN manifest_range anchor ON anchor.chain_id = c.id AND anchor.kind = 'anchor'
WHERE c.pipeline = %(pipeline_name)s AND c.retired_at IS NULL
ORDER BY c.topic, c.partition, c.generation DESC;

-- name: chains_held_since
-- The time since which an open transaction may hold up a chain: its newest range was planned then, or a later run found
-- no open transaction in this partition. Such a run names a time up to which it read, or notes only other partitions.
SELECT c.topic, c.partition, greatest(grown.at, (
    SELECT max(least(r.planned_at, coalesce(r.planned_up_to, r.cut_at, r.planned_at))) FROM run r
    WHERE r.pipeline = c.pipeline AND r.planned_at > grown.at AND (r.planned_up_to IS NOT NULL OR (
        EXISTS (SELECT FROM run_end e WHERE e.run_id = r.id AND e.chain_id = c.id) AND NOT EXISTS (
            SELECT FROM unnest(r.notes) AS note
            WHERE starts_with(note, c.topic || '-' || c.partition || %(held_by)s)))))) AS since
FROM chain c
CROSS JOIN LATERAL (
    SELECT coalesce(
        (SELECT m.created_at FROM manifest_range r JOIN manifest m ON m.id = r.manifest_id
         WHERE r.chain_id = c.id ORDER BY r.end_offset DESC LIMIT 1),
        (SELECT min(r.planned_at) FROM run r WHERE r.pipeline = c.pipeline)) AS at) grown
WHERE c.pipeline = %(pipeline_name)s AND c.retired_at IS NULL;

-- name: last_published
-- For each chain the newest published range that ends at or below an offset, and its last record by the receipt.
-- Uses index probes, and unpacks each receipt once, because a manifest has ranges on many chains.
WITH newest AS MATERIALIZED (
    SELECT part.chain_id, r.*
    FROM unnest(%(chains)s::bigint[], %(ends)s::bigint[]) AS part (chain_id, end_offset)
    CROSS JOIN LATERAL (
        SELECT g.manifest_id, g.start_offset, g.end_offset, (
            SELECT max(p.attempt) FROM publication p WHERE p.manifest_id = g.manifest_id) AS attempt
        FROM manifest_range g
        WHERE g.chain_id = part.chain_id AND g.end_offset <= part.end_offset
          AND EXISTS (SELECT FROM publication p WHERE p.manifest_id = g.manifest_id)
        ORDER BY g.end_offset DESC LIMIT 1) r),
counted AS MATERIALIZED (
    SELECT a.manifest_id, count
    FROM (SELECT DISTINCT manifest_id, attempt FROM newest) n
    JOIN attempt a ON a.manifest_id = n.manifest_id AND a.attempt = n.attempt
    CROSS JOIN LATERAL jsonb_array_elements(a.receipt -> 'partitions') AS count)
SELECT n.chain_id, n.start_offset, n.end_offset, (count ->> 'last')::bigint AS last_offset,
       (count ->> 'last_timestamp_ms')::bigint AS timestamp_ms, count ->> 'last_digest' AS digest,
       (count ->> 'last_epoch')::int AS leader_epoch, (count ->> 'read')::bigint AS read
FROM newest n
JOIN chain c ON c.id = n.chain_id
JOIN counted ON counted.manifest_id = n.manifest_id AND counted.count ->> 'topic' = c.topic
    AND (counted.count ->> 'partition')::int = c.partition;

-- name: cut_ranges
-- For each chain the published range that reaches above the end of the generation: its part below that end, and the
-- leader epoch of its last record. Without an epoch nothing is known about that part.
SELECT head.chain_id, head.start_offset, head.generation_end, (count ->> 'last_epoch')::int AS leader_epoch
FROM (
    SELECT part.chain_id, part.generation_end, g.start_offset, g.manifest_id, (
        SELECT max(p.attempt) FROM publication p WHERE p.manifest_id = g.manifest_id) AS attempt
    FROM unnest(%(chains)s::bigint[], %(ends)s::bigint[]) AS part (chain_id, generation_end)
    JOIN manifest_range g ON g.chain_id = part.chain_id
        AND g.start_offset < part.generation_end AND g.end_offset > part.generation_end) head
JOIN chain c ON c.id = head.chain_id
JOIN attempt a ON a.manifest_id = head.manifest_id AND a.attempt = head.attempt
CROSS JOIN LATERAL jsonb_array_elements(a.receipt -> 'partitions') AS count
WHERE count ->> 'topic' = c.topic AND (count ->> 'partition')::int = c.partition AND count ->> 'last_epoch' IS NOT NULL;

-- name: staged_below
-- The last records that attempts have read below the ranges of a manifest, over all generations of these logs, and that
-- may still be published. Attempts that stored a receipt count, also failed and dead ones, because their output may be
-- found complete. It is not published where it was taken back, where the same or a later attempt is published, or where
-- the sink is retired. For the manifest itself: what a lower attempt read for sinks that this one does not write to.
WITH own AS (
    SELECT c.pipeline, c.topic, c.topic_id, c.partition, g.start_offset
    FROM manifest_range g JOIN chain c ON c.id = g.chain_id WHERE g.manifest_id = %(manifest_id)s),
staged AS MATERIALIZED (
    SELECT a.manifest_id, a.attempt, count ->> 'topic' AS topic, (count ->> 'partition')::int AS partition,
           (count ->> 'last')::bigint AS last_offset, (count ->> 'last_timestamp_ms')::bigint AS timestamp_ms,
           count ->> 'last_digest' AS digest, (count ->> 'last_epoch')::int AS leader_epoch
    FROM manifest m
    JOIN attempt a ON a.manifest_id = m.id AND a.receipt IS NOT NULL
    CROSS JOIN LATERAL jsonb_array_elements(a.receipt -> 'partitions') AS count
    WHERE m.pipeline = (SELECT pipeline FROM own LIMIT 1) AND m.state <> 'done' AND m.attempt > 0
      AND count ->> 'last_digest' IS NOT NULL AND (m.id <> %(manifest_id)s OR a.attempt < %(attempt)s)
      AND EXISTS (
          SELECT FROM jsonb_array_elements_text(a.receipt -> 'sinks') AS wrote (sink)
          WHERE NOT wrote.sink = ANY (a.taken_back)
            AND (m.id <> %(manifest_id)s OR NOT wrote.sink = ANY (%(sinks)s::text[]))
            AND NOT EXISTS (SELECT FROM publication p WHERE p.manifest_id = m.id AND p.sink = wrote.sink
                            AND p.attempt >= a.attempt)
            AND NOT EXISTS (SELECT FROM sink k WHERE k.pipeline = m.pipeline AND k.name = wrote.sink
                            AND k.retired_at IS NOT NULL)))
SELECT DISTINCT own.topic, own.topic_id, own.partition, staged.manifest_id, staged.attempt, staged.last_offset,
       staged.timestamp_ms, staged.digest, staged.leader_epoch, covered.end_offset
FROM staged
JOIN own ON own.topic = staged.topic AND own.partition = staged.partition
    AND (staged.manifest_id = %(manifest_id)s OR staged.last_offset < own.start_offset)
CROSS JOIN LATERAL (
    SELECT max(least(g.end_offset, CASE WHEN c.retired_at IS NOT NULL THEN generation_end(c.id) END)) AS end_offset
    FROM manifest_range g JOIN chain c ON c.id = g.chain_id
    WHERE g.manifest_id = staged.manifest_id AND c.topic = own.topic AND c.topic_id = own.topic_id
      AND c.partition = own.partition) covered
WHERE covered.end_offset IS NOT NULL
ORDER BY staged.last_offset DESC, staged.manifest_id, staged.attempt;

-- name: earlier_generations
-- The retired chains of the same logs, the newest first.
SELECT later.id AS later_id, earlier.id, anchor.end_offset AS anchor, generation_end(earlier.id) AS generation_end
FROM chain later
JOIN chain earlier ON earlier.pipeline = later.pipeline AND earlier.topic_id = later.topic_id
    AND earlier.partition = later.partition AND earlier.generation < later.generation
JOIN manifest_range anchor ON anchor.chain_id = earlier.id AND anchor.kind = 'anchor'
WHERE later.id = ANY (%(chains)s) ORDER BY later.id, earlier.generation DESC;

-- name: chains_of
-- The chain of each range of a manifest, up to the end of the range.
SELECT c.id, c.topic, c.topic_id, c.partition, c.generation, c.blocked, c.blocked_end,
       r.end_offset, anchor.end_offset AS anchor
FROM manifest_range r
JOIN chain c ON c.id = r.chain_id
JOIN manifest_range anchor ON anchor.chain_id = c.id AND anchor.kind = 'anchor'
WHERE r.manifest_id = %(manifest_id)s;

-- name: ended_chains
-- The newest retired chain of each partition, by topic id: the same topic may come back.
SELECT DISTINCT ON (c.topic, c.topic_id, c.partition)
       c.id, c.topic, c.topic_id, c.partition, c.generation, c.blocked, c.blocked_end,
       latest.end_offset, anchor.end_offset AS anchor
FROM chain c
CROSS JOIN LATERAL (
    SELECT r.end_offset FROM manifest_range r WHERE r.chain_id = c.id ORDER BY r.end_offset DESC LIMIT 1) latest
JOIN manifest_range anchor ON anchor.chain_id = c.id AND anchor.kind = 'anchor'
WHERE c.pipeline = %(pipeline_name)s AND c.retired_at IS NOT NULL
ORDER BY c.topic, c.topic_id, c.partition, c.generation DESC;

-- name: record_bytes
-- The bytes of key and value per record, measured on the newest published manifests.
SELECT sum(bytes) / nullif(sum(read), 0) AS record_bytes
FROM (
    SELECT (count ->> 'bytes')::numeric AS bytes, (count ->> 'read')::numeric AS read
    FROM (SELECT id FROM manifest
          WHERE pipeline = %(pipeline_name)s AND state = 'done' ORDER BY id DESC LIMIT 20) recent
    JOIN publication p ON p.manifest_id = recent.id
    JOIN attempt a ON a.manifest_id = p.manifest_id AND a.attempt = p.attempt
    CROSS JOIN LATERAL jsonb_array_elements(a.receipt -> 'partitions') AS count) measured;

-- name: insert_chains
-- A partition that had a chain before (another topic id, or a truncated log) starts its next generation.
INSERT INTO chain (pipeline, topic, topic_id, partition, generation)
SELECT %(pipeline_name)s, new.topic, new.topic_id, new.partition, 1 + coalesce((
    SELECT max(c.generation) FROM chain c
    WHERE c.pipeline = %(pipeline_name)s AND c.topic = new.topic AND c.partition = new.partition), 0)
FROM unnest(%(topics)s::text[], %(topic_ids)s::text[], %(partitions)s::int[]) AS new (topic, topic_id, partition)
RETURNING id, topic, topic_id, partition;

-- name: insert_ranges
INSERT INTO manifest_range (chain_id, start_offset, end_offset, kind, manifest_id)
SELECT * FROM unnest(%(chains)s::bigint[], %(starts)s::bigint[], %(ends)s::bigint[], %(kinds)s::range_kind[],
                     %(manifests)s::bigint[]);

-- name: covering_manifests
-- The manifests that hold the last offset before each partition's end of a cut.
SELECT DISTINCT r.manifest_id AS id
FROM unnest(%(chains)s::bigint[], %(ends)s::bigint[]) AS cut (chain_id, end_offset)
CROSS JOIN LATERAL (
    SELECT g.manifest_id, g.start_offset FROM manifest_range g
    WHERE g.chain_id = cut.chain_id AND g.end_offset >= cut.end_offset ORDER BY g.end_offset LIMIT 1) r
WHERE r.manifest_id IS NOT NULL AND r.start_offset < cut.end_offset
ORDER BY 1;

-- name: unpublished_before
-- The manifests that are not done and hold an offset before any end. They are few, and an index has only them.
SELECT DISTINCT m.id
FROM manifest m
JOIN manifest_range r ON r.manifest_id = m.id
JOIN unnest(%(chains)s::bigint[], %(ends)s::bigint[]) AS cut (chain_id, end_offset)
    ON cut.chain_id = r.chain_id AND r.start_offset < cut.end_offset
WHERE m.pipeline = %(pipeline_name)s AND m.state <> 'done'
ORDER BY 1;

-- name: manifests_between
-- The manifests that hold an offset of any part: offsets of one chain, half-open. Both bounds are conditions on the end
-- of the range, so that one index finds only the ranges of the part, however long the chain is.
SELECT DISTINCT r.manifest_id AS id
FROM unnest(%(chains)s::bigint[], %(starts)s::bigint[], %(ends)s::bigint[]) AS part (chain_id, start_offset, end_offset)
CROSS JOIN LATERAL (
    SELECT g.manifest_id FROM manifest_range g
    WHERE g.chain_id = part.chain_id AND part.start_offset < part.end_offset AND g.end_offset > part.start_offset
      AND g.end_offset <= coalesce((
          SELECT l.end_offset FROM manifest_range l
          WHERE l.chain_id = part.chain_id AND l.end_offset >= part.end_offset ORDER BY l.end_offset LIMIT 1),
          9223372036854775807)) r
WHERE r.manifest_id IS NOT NULL
ORDER BY 1;

-- name: insert_run_ends
INSERT INTO run_end (run_id, chain_id, end_offset)
SELECT %(run_id)s, * FROM unnest(%(chains)s::bigint[], %(ends)s::bigint[]);

-- name: ends_of_cut
-- The ends of the run with this cut; of several such runs, the lowest end of each chain.
SELECT e.chain_id, min(e.end_offset) AS end_offset
FROM run r JOIN run_end e ON e.run_id = r.id
WHERE r.pipeline = %(pipeline_name)s AND r.cut_at = %(cut_at)s GROUP BY e.chain_id;

-- name: ends_of_schedule
-- The ends of the newest scheduled run with this cut or an earlier one.
SELECT e.chain_id, e.end_offset
FROM (SELECT id FROM run WHERE pipeline = %(pipeline_name)s AND kind = 'scheduled' AND cut_at <= %(cut_at)s
      ORDER BY cut_at DESC, id LIMIT 1) r
JOIN run_end e ON e.run_id = r.id;

-- name: scheduled_cuts
-- The ten newest cuts of scheduled runs and backfills; uses the index of cuts.
SELECT DISTINCT cut_at FROM run
WHERE pipeline = %(pipeline_name)s AND kind IN ('scheduled', 'backfill') AND cut_at IS NOT NULL
ORDER BY cut_at DESC LIMIT 10;

-- name: run_ends
SELECT chain_id, end_offset FROM run_end WHERE run_id = %(run_id)s;

-- name: places_of_run_ends
SELECT c.topic, c.topic_id, c.partition, e.end_offset
FROM run_end e JOIN chain c ON c.id = e.chain_id WHERE e.run_id = %(run_id)s
ORDER BY c.topic, c.topic_id, c.partition;

-- name: ends_before
-- The ends of the newest run that planned up to this time or an earlier one.
SELECT e.chain_id, e.end_offset
FROM (SELECT id FROM run WHERE pipeline = %(pipeline_name)s AND planned_up_to <= %(until)s
      ORDER BY planned_up_to DESC, id LIMIT 1) r
JOIN run_end e ON e.run_id = r.id;

-- name: run_past
-- The run that planned up to a time or just past it; of several with one cut the last one, which saw late records too.
SELECT id, run_key, planned_up_to FROM run
WHERE pipeline = %(pipeline_name)s AND planned_up_to >= %(until)s ORDER BY planned_up_to, id DESC LIMIT 1;

-- name: planned_before
SELECT max(planned_up_to) AS at FROM run WHERE pipeline = %(pipeline_name)s AND planned_up_to < %(time)s;

-- name: newest_run
SELECT run_key, planned_up_to FROM run
WHERE pipeline = %(pipeline_name)s AND planned_up_to IS NOT NULL ORDER BY planned_up_to DESC, id DESC LIMIT 1;

-- name: unpublished_parts
-- Ranges below the ends of a run whose manifest has no publication in a sink: manifests that are not done, and those in
-- parts of the ids where the sink lacks some. On a chain that the run did not see (its topic had left the pipeline, or
-- its log generation had ended), ranges that were planned before the run count. Without a run: all. Output that was
-- given up in a sink does not count as missing.
WITH lacking AS (
    SELECT m.id, m.state::text AS state, m.run_id, sink.name AS sink
    FROM manifest m CROSS JOIN unnest(%(sinks)s::text[]) AS sink (name)
    WHERE m.pipeline = %(pipeline_name)s AND m.state <> 'done'
      AND NOT EXISTS (SELECT FROM publication p WHERE p.manifest_id = m.id AND p.sink = sink.name)
    UNION ALL
    SELECT m.id, 'done', m.run_id, sink.name
    FROM unnest(%(sinks)s::text[]) AS sink (name)
    CROSS JOIN LATERAL parts_lacking(%(pipeline_name)s, sink.name) AS part
    CROSS JOIN LATERAL (
        SELECT m.id, m.run_id FROM manifest m
        WHERE m.pipeline = %(pipeline_name)s AND m.state = 'done' AND m.id >= part.first_id AND m.id < part.end_id
          AND NOT EXISTS (SELECT FROM publication p WHERE p.manifest_id = m.id AND p.sink = sink.name)
          AND NOT EXISTS (SELECT FROM given_up g WHERE g.manifest_id = m.id AND g.sink = sink.name)) m)
SELECT m.id AS manifest_id, m.state, m.sink,
       CASE WHEN c.retired_at IS NOT NULL THEN generation_end(c.id) END AS generation_end,
       c.topic, c.topic_id, c.partition, r.start_offset, least(r.end_offset, e.end_offset) AS end_offset
FROM lacking m
JOIN manifest_range r ON r.manifest_id = m.id
JOIN chain c ON c.id = r.chain_id
LEFT JOIN run_end e ON e.run_id = %(run_id)s AND e.chain_id = c.id
WHERE CASE WHEN %(run_id)s::bigint IS NULL THEN true
           WHEN e.run_id IS NULL THEN m.run_id < %(run_id)s ELSE r.start_offset < e.end_offset END
ORDER BY manifest_id, topic, partition, start_offset, sink;

-- name: parts_of_manifests
-- Ranges of these manifests below the ends of a run, which are those of "unpublished_parts".
SELECT r.manifest_id, CASE WHEN c.retired_at IS NOT NULL THEN generation_end(c.id) END AS generation_end,
       c.topic, c.topic_id, c.partition, r.start_offset, least(r.end_offset, e.end_offset) AS end_offset
FROM manifest m
JOIN manifest_range r ON r.manifest_id = m.id
JOIN chain c ON c.id = r.chain_id
LEFT JOIN run_end e ON e.run_id = %(run_id)s AND e.chain_id = c.id
WHERE m.id = ANY (%(ids)s)
  AND CASE WHEN %(run_id)s::bigint IS NULL THEN true
           WHEN e.run_id IS NULL THEN m.run_id < %(run_id)s ELSE r.start_offset < e.end_offset END
ORDER BY manifest_id, topic, partition, start_offset;

-- name: lost_parts
SELECT CASE WHEN c.retired_at IS NOT NULL THEN generation_end(c.id) END AS generation_end,
       c.topic, c.topic_id, c.partition, r.start_offset,
       least(r.end_offset, e.end_offset) AS end_offset
FROM chain c
JOIN manifest_range r ON r.chain_id = c.id AND r.kind = 'lost'
LEFT JOIN run_end e ON e.run_id = %(run_id)s AND e.chain_id = c.id
WHERE c.pipeline = %(pipeline_name)s AND (e.run_id IS NULL OR r.start_offset < e.end_offset)
ORDER BY c.topic, c.partition, c.generation, r.start_offset;

-- name: ranges_at
-- For each chain of a partition the range that holds an offset; uses index probes, however long the history is.
SELECT c.id AS chain_id, c.pipeline, c.topic, c.topic_id, c.partition, c.generation,
       c.retired_at IS NOT NULL AS retired, anchor.end_offset AS anchor, latest.end_offset AS chain_end,
       found.start_offset, found.end_offset, found.kind::text AS kind, found.manifest_id
FROM chain c
JOIN manifest_range anchor ON anchor.chain_id = c.id AND anchor.kind = 'anchor'
CROSS JOIN LATERAL (
    SELECT r.end_offset FROM manifest_range r WHERE r.chain_id = c.id ORDER BY r.end_offset DESC LIMIT 1) latest
LEFT JOIN LATERAL (
    SELECT r.* FROM manifest_range r
    WHERE r.chain_id = c.id AND r.end_offset > %(offset)s ORDER BY r.end_offset LIMIT 1) found
    ON found.start_offset <= %(offset)s
WHERE c.topic = %(topic)s AND c.partition = %(partition)s
  AND (%(pipeline_name)s::text IS NULL OR c.pipeline = %(pipeline_name)s)
ORDER BY c.pipeline, c.generation;

-- name: topics
SELECT DISTINCT topic FROM chain WHERE %(pipeline_name)s::text IS NULL OR pipeline = %(pipeline_name)s ORDER BY topic;

-- name: insert_run
INSERT INTO run (pipeline, run_key, kind, cut_at, reached, planned_up_to, manifests, covered_by, notes, lag,
                 published_before)
SELECT %(pipeline_name)s, %(run_key)s, %(kind)s, %(cut_at)s, %(reached)s, %(planned_up_to)s, '{}', %(covered_by)s,
       %(notes)s, %(unplanned)s::bigint + coalesce(sum(g.end_offset - g.start_offset), 0), %(published_before)s
FROM manifest m JOIN manifest_range g ON g.manifest_id = m.id
WHERE m.pipeline = %(pipeline_name)s AND m.state <> 'done' AND %(unplanned)s::bigint IS NOT NULL
RETURNING id;

-- name: insert_manifests
INSERT INTO manifest (run_id, pipeline, slice)
SELECT %(run_id)s, %(pipeline_name)s, slice FROM generate_series(%(first)s::int, %(last)s::int) AS slice
RETURNING id, slice;

-- name: list_manifests_of_run
UPDATE run SET manifests = manifests || %(manifests)s::bigint[] WHERE id = %(run_id)s;

-- name: block_chains
UPDATE chain SET blocked = %(reason)s, blocked_since = now(), blocked_end = %(generation_end)s
WHERE id = ANY (%(chains)s) AND blocked IS NULL AND retired_at IS NULL;

-- name: retire_chains
UPDATE chain SET retired_at = now(), blocked = NULL, blocked_since = NULL, blocked_end = NULL
WHERE id = ANY (%(chains)s) AND retired_at IS NULL;

-- name: unblock_chains
UPDATE chain SET blocked = NULL, blocked_since = NULL, blocked_end = NULL WHERE id = ANY (%(chains)s);

-- name: lock_undone
SELECT id FROM manifest
WHERE pipeline = %(pipeline_name)s AND (state <> 'done' OR id = ANY (%(also)s)) ORDER BY id FOR UPDATE;

-- name: undone_ranges
SELECT r.chain_id, r.manifest_id, jsonb_build_object(
           'at', jsonb_build_object('topic', c.topic, 'topic_id', c.topic_id, 'partition', c.partition),
           'start', r.start_offset, 'end', r.end_offset, 'incarnation', c.generation, 'anchor', a.end_offset) AS covered,
       CASE WHEN c.retired_at IS NOT NULL THEN generation_end(c.id) END AS generation_end
FROM manifest m JOIN manifest_range r ON r.manifest_id = m.id JOIN chain c ON c.id = r.chain_id
JOIN manifest_range a ON a.chain_id = r.chain_id AND a.kind = 'anchor'
WHERE m.pipeline = %(pipeline_name)s AND m.state <> 'done'
ORDER BY c.topic, c.partition, r.start_offset;

-- name: beyond_generation
SELECT topic, partition, start_offset, end_offset, generation_end, noticed FROM range_beyond_generation
WHERE manifest_id = %(manifest_id)s ORDER BY topic, partition, start_offset;

-- name: accept_loss
SELECT accept_loss(%(chain_id)s, %(start)s, %(end)s) AS id;

-- name: extend_back
SELECT extend_back(%(chain_id)s, %(anchor)s);

-- name: seen_manifests
-- A part of the two statements below: manifests, and the process of an attempt that has not ended.
SELECT v.*, process.seen AS process FROM manifest_view v
LEFT JOIN LATERAL (
    SELECT jsonb_build_object('actor', a.actor, 'began_at', a.started_at, 'last_entry_at', coalesce((
               SELECT max(e.at) FROM event e WHERE e.manifest_id = v.id AND e.actor = a.actor), a.started_at)) AS seen
    FROM attempt a WHERE v.state = 'running' AND a.manifest_id = v.id AND a.attempt = v.attempt) process ON true

-- name: manifests
-- include: seen_manifests
WHERE (%(pipeline_name)s::text IS NULL OR v.pipeline = %(pipeline_name)s)
  AND (%(states)s::text[] IS NULL OR v.state::text = ANY (%(states)s))
  AND (%(ids)s::bigint[] IS NULL OR v.id = ANY (%(ids)s))
ORDER BY v.id;

-- name: chosen_manifests
-- A part of the four statements below: manifests with ids in [first_id, end_id), or in order of time those behind one.
-- A state other than done uses the index of what is not done; a time uses the index of runs.
SELECT m.id FROM manifest m
JOIN (SELECT id, pipeline, coalesce(planned_up_to, cut_at, planned_at) AS time FROM run) r ON r.id = m.run_id
WHERE (%(pipeline_name)s::text IS NULL OR m.pipeline = %(pipeline_name)s AND r.pipeline = %(pipeline_name)s)
  AND (%(first_id)s::bigint IS NULL OR m.id >= %(first_id)s)
  AND (%(end_id)s::bigint IS NULL OR m.id < %(end_id)s)
  AND (%(state)s::text IS NULL OR m.state = %(state)s::manifest_state)
  AND (%(state)s::text IS NULL OR %(state)s::text = 'done' OR m.state <> 'done')   -- by the index of those
  AND (%(since)s::timestamptz IS NULL OR r.time > %(since)s)
  AND (%(until)s::timestamptz IS NULL OR r.time <= %(until)s)
  AND (%(behind)s::timestamptz IS NULL OR r.time <= %(behind)s)   -- by the index
  AND (%(behind)s::timestamptz IS NULL OR (r.time, m.id) < (%(behind)s, %(after)s))
  AND (%(lacks)s::text IS NULL OR m.state = 'done'
       AND NOT EXISTS (SELECT FROM publication p WHERE p.manifest_id = m.id AND p.sink = %(lacks)s)
       AND NOT EXISTS (SELECT FROM given_up g WHERE g.manifest_id = m.id AND g.sink = %(lacks)s))

-- name: parts_lacking
SELECT first_id, end_id FROM parts_lacking(%(pipeline_name)s, %(sink)s);

-- name: chains_at
SELECT id FROM chain
WHERE (%(pipeline_name)s::text IS NULL OR pipeline = %(pipeline_name)s)
  AND (%(topic)s::text IS NULL OR topic = %(topic)s) AND (%(partition)s::int IS NULL OR partition = %(partition)s);

-- name: time_of_manifest
SELECT coalesce(r.planned_up_to, r.cut_at, r.planned_at) AS time
FROM manifest m JOIN run r ON r.id = m.run_id WHERE m.id = %(manifest_id)s;

-- name: newest_manifests
-- Newest first; a page takes the same time at any depth.
-- include: chosen_manifests
ORDER BY CASE WHEN %(by_time)s THEN r.time END DESC, m.id DESC LIMIT %(limit)s;

-- name: newest_manifests_at
-- The same, for manifests with offsets of these chains. PostgreSQL chooses whether to read the manifests from the
-- newest on, or the ranges of the chains, by how many there are.
-- include: chosen_manifests
  AND EXISTS (SELECT FROM manifest_range g WHERE g.manifest_id = m.id AND g.chain_id = ANY (%(chains)s))
ORDER BY CASE WHEN %(by_time)s THEN r.time END DESC, m.id DESC LIMIT %(limit)s;

-- name: count_manifests
SELECT count(*) AS manifests FROM (
    -- include: chosen_manifests
    LIMIT %(limit)s) chosen;

-- name: count_manifests_at
SELECT count(*) AS manifests FROM (
    -- include: chosen_manifests
      AND EXISTS (SELECT FROM manifest_range g WHERE g.manifest_id = m.id AND g.chain_id = ANY (%(chains)s))
    LIMIT %(limit)s) chosen;

-- name: undone
-- Uses an index that has only these manifests; the array is made first.
-- include: seen_manifests
WHERE v.id = ANY (ARRAY(SELECT m.id FROM manifest m WHERE m.pipeline = %(pipeline_name)s AND m.state <> 'done'))
ORDER BY v.id;

-- name: hand_out
-- Assigns each manifest to a DAG run only if it still belongs to the DAG run that the caller has seen. So if two runs
-- take the same manifest along, only one gets it.
UPDATE manifest m SET dag_run = %(dag_run)s
FROM unnest(%(manifests)s::bigint[], %(dag_runs)s::text[]) AS seen (id, dag_run)
WHERE m.id = seen.id AND m.dag_run IS NOT DISTINCT FROM seen.dag_run
RETURNING m.id;

-- name: published_up_to
-- The run that planned furthest, of the runs with nothing unpublished below their ends.
SELECT r.planned_up_to FROM run r
WHERE r.pipeline = %(pipeline_name)s AND r.planned_up_to IS NOT NULL AND NOT EXISTS (
    SELECT FROM manifest m
    JOIN manifest_range g ON g.manifest_id = m.id
    LEFT JOIN run_end e ON e.run_id = r.id AND e.chain_id = g.chain_id
    WHERE m.pipeline = r.pipeline AND m.state <> 'done'
      AND CASE WHEN e.run_id IS NULL THEN m.run_id < r.id ELSE g.start_offset < e.end_offset END)
ORDER BY r.planned_up_to DESC LIMIT 1;

-- name: lost_offsets
SELECT coalesce(sum(r.end_offset - r.start_offset), 0)::bigint AS offsets
FROM chain c JOIN manifest_range r ON r.chain_id = c.id AND r.kind = 'lost' WHERE c.pipeline = %(pipeline_name)s;

-- name: with_dead_letters
-- Uses the index of publications with dead letters, from the newest on.
SELECT DISTINCT manifest_id AS id FROM standing_publication
WHERE pipeline = %(pipeline_name)s AND (counts ->> 'dead_lettered')::bigint > 0
  AND (%(manifest_id)s::bigint IS NULL OR manifest_id = %(manifest_id)s)
ORDER BY manifest_id DESC LIMIT %(newest)s;

-- name: states
-- Done manifests are counted by their sums.
SELECT state, sum(manifests)::bigint AS manifests, max(last_done) AS last_done FROM (
    SELECT state::text AS state, count(*) AS manifests, NULL::timestamptz AS last_done
    FROM manifest WHERE pipeline = %(pipeline_name)s AND state <> 'done' GROUP BY state
    UNION ALL
    SELECT 'done', manifests, last_done FROM done_sum WHERE pipeline = %(pipeline_name)s AND sink IS NULL) counted
GROUP BY state HAVING sum(manifests) > 0;

-- name: add_up_sums
-- Skips rows that another process is adding up.
WITH added AS (
    DELETE FROM done_sum WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM done_sum WHERE pipeline = %(pipeline_name)s FOR UPDATE SKIP LOCKED)) RETURNING *)
INSERT INTO done_sum (pipeline, part, sink, manifests, read, written, dead_lettered, late, last_done)
SELECT pipeline, part, sink, sum(manifests), sum(read), sum(written), sum(dead_lettered), sum(late), max(last_done)
FROM added GROUP BY pipeline, part, sink;

-- name: wrong_sums
-- The parts and sinks whose sums differ from what the tables hold now.
SELECT part, sink FROM (
    SELECT part, sink, manifests, read, written, dead_lettered, late FROM counted_done
    WHERE pipeline = %(pipeline_name)s
    UNION ALL
    SELECT part, sink, -manifests, -read, -written, -dead_lettered, -late FROM done_sum
    WHERE pipeline = %(pipeline_name)s) compared
GROUP BY part, sink
HAVING (sum(manifests), sum(read), sum(written), sum(dead_lettered), sum(late)) <> (0, 0, 0, 0, 0);

-- name: store_audit
-- Stores nothing for a pipeline that was never planned. The newest 100 of each depth are kept.
WITH too_old AS (
    DELETE FROM audit WHERE pipeline = %(pipeline_name)s AND deep = %(deep)s AND at <= (
        SELECT at FROM audit WHERE pipeline = %(pipeline_name)s AND deep = %(deep)s ORDER BY at DESC OFFSET 99 LIMIT 1))
INSERT INTO audit (pipeline, deep, at, actor, differences, first_differences)
SELECT name, %(deep)s, %(began)s, %(actor)s, %(differences)s, %(first_differences)s
FROM pipeline WHERE name = %(pipeline_name)s
ON CONFLICT (pipeline, deep, at) DO NOTHING;

-- name: last_audits
SELECT at, actor, deep, differences, first_differences FROM (
    SELECT DISTINCT ON (deep) * FROM audit WHERE pipeline = %(pipeline_name)s ORDER BY deep, at DESC) newest
ORDER BY at DESC;

-- name: audit_history
SELECT at, actor, deep, differences FROM audit WHERE pipeline = %(pipeline_name)s ORDER BY at DESC LIMIT %(limit)s;

-- name: note_failed_task
-- Once a last try has failed, retry_at stays NULL: the first try of the next run must not hide that.
INSERT INTO failed_task (pipeline, task, actor, what, next_step, refused, run_key, retry_at, silent)
VALUES (%(pipeline_name)s, %(task)s, %(actor)s, %(what)s, %(next_step)s, %(refused)s, '', %(retry_at)s, %(silent)s)
ON CONFLICT (pipeline, task) DO UPDATE
SET at = now(), times = failed_task.times + 1, actor = excluded.actor, what = excluded.what,
    next_step = excluded.next_step, refused = excluded.refused, silent = excluded.silent,
    retry_at = CASE WHEN failed_task.times = 0 OR failed_task.retry_at IS NOT NULL THEN excluded.retry_at END;

-- name: note_begun_task
-- Keeps "since" of the first task that did not succeed, because each one may be killed.
INSERT INTO failed_task (pipeline, task, times, actor, what, next_step, refused, run_key)
VALUES (%(pipeline_name)s, %(task)s, 0, %(actor)s, '', '', false, %(run_key)s)
ON CONFLICT (pipeline, task) DO UPDATE
SET run_key = excluded.run_key;

-- name: forget_begun_task
DELETE FROM failed_task WHERE pipeline = %(pipeline_name)s AND task = %(task)s AND times = 0;

-- name: forget_failed_plan_of
-- Also the note of a plan that failed before it began: it has no run key, and a later plan has come further now.
DELETE FROM failed_task WHERE pipeline = %(pipeline_name)s AND task = 'plan' AND run_key IN ('', %(run_key)s);

-- name: forget_refused_plan
DELETE FROM failed_task WHERE pipeline = %(pipeline_name)s AND task = 'plan' AND refused;

-- name: forget_failed_task
DELETE FROM failed_task WHERE pipeline = %(pipeline_name)s AND task = %(task)s;

-- name: pipelines_noted
SELECT DISTINCT pipeline AS name FROM failed_task;

-- name: failed_tasks
SELECT task, since, at, times, actor, what, next_step, refused, retry_at, silent FROM failed_task
WHERE pipeline = %(pipeline_name)s ORDER BY task DESC;

-- name: of_each
-- The rows of a statement about one pipeline, for many pipelines at once.
SELECT of_pipeline, one.* FROM unnest(%(names)s::text[]) ahead (of_pipeline), LATERAL ({}
) one;

-- name: planned_at
SELECT min(planned_at) AS first, max(planned_at) AS last,
       max(planned_at) FILTER (WHERE reached AND planned_up_to IS NULL) AS last_without_time
FROM run WHERE pipeline = %(pipeline_name)s;

-- name: made_otherwise
-- The done manifests with a publication that was made with other settings than these. The schemas of a registry, behind
-- a plus, are ignored: they change by themselves. Manifests that other sinks have too are left out, because their
-- fingerprint contains those sinks. An adopted attempt has no fingerprint to compare.
SELECT DISTINCT m.id FROM manifest m JOIN publication p ON p.manifest_id = m.id
JOIN attempt a ON a.manifest_id = p.manifest_id AND a.attempt = p.settled
WHERE m.pipeline = %(pipeline_name)s AND m.state = 'done'
  AND a.fingerprint <> 'adopted' AND split_part(a.fingerprint, '+', 1) <> ALL (%(fingerprints)s)
  AND NOT EXISTS (SELECT FROM publication o WHERE o.manifest_id = m.id AND o.sink <> ALL (%(sinks)s))
ORDER BY m.id;

-- name: last_took
-- How long the published attempt of the newest done manifest took; uses the index of a pipeline's manifests.
SELECT extract(epoch FROM a.ended_at - a.started_at)::float8 AS seconds
FROM manifest m JOIN attempt a ON a.manifest_id = m.id AND a.state = 'published'
WHERE m.pipeline = %(pipeline_name)s AND m.state = 'done' ORDER BY m.id DESC, a.attempt DESC LIMIT 1;

-- name: count_lacking
SELECT (coalesce((
    SELECT sum(CASE WHEN s.sink IS NULL THEN s.manifests ELSE -s.manifests END) FROM done_sum s
    WHERE s.pipeline = %(pipeline_name)s AND (s.sink IS NULL OR s.sink = %(sink)s)), 0) - (
    SELECT count(*) FROM given_up g JOIN manifest m ON m.id = g.manifest_id
    WHERE g.sink = %(sink)s AND m.pipeline = %(pipeline_name)s AND m.state = 'done'
      AND NOT EXISTS (SELECT FROM publication p WHERE p.manifest_id = m.id AND p.sink = %(sink)s)))::int AS manifests;

-- name: published_nowhere
-- The done manifests that no sink shows because the sinks that did are retired, and that were not given up. Reads only
-- the parts of the ids where no sink shows all; usually there are none.
SELECT nowhere.id
FROM (
    SELECT c.part FROM (
        SELECT s.part, s.sink, sum(s.manifests) AS manifests FROM done_sum s
        LEFT JOIN sink k ON k.pipeline = s.pipeline AND k.name = s.sink
        WHERE s.pipeline = %(pipeline_name)s AND k.retired_at IS NULL GROUP BY s.part, s.sink) c
    GROUP BY c.part
    HAVING max(c.manifests) FILTER (WHERE c.sink IS NULL)
         > coalesce(max(c.manifests) FILTER (WHERE c.sink IS NOT NULL), 0)) AS lacking
CROSS JOIN LATERAL (
    SELECT m.id FROM manifest m
    WHERE m.pipeline = %(pipeline_name)s AND m.state = 'done' AND m.id >= lacking.part AND m.id < lacking.part + 100000
      AND NOT EXISTS (SELECT FROM standing_publication p WHERE p.manifest_id = m.id)
      AND NOT EXISTS (SELECT FROM given_up g WHERE g.manifest_id = m.id)
    ORDER BY m.id LIMIT 101) nowhere
ORDER BY nowhere.id LIMIT 101;

-- name: lanes
-- Each chain from its anchor to its end. Reads only the first and the last range, however long the history is.
SELECT c.id, c.topic, c.topic_id, c.partition, c.generation, c.retired_at IS NOT NULL AS retired, c.blocked,
       c.blocked_end IS NOT NULL AS cut, anchor.end_offset AS anchor, latest.end_offset
FROM chain c
JOIN manifest_range anchor ON anchor.chain_id = c.id AND anchor.kind = 'anchor'
CROSS JOIN LATERAL (
    SELECT r.end_offset FROM manifest_range r WHERE r.chain_id = c.id ORDER BY r.end_offset DESC LIMIT 1) latest
WHERE c.pipeline = %(pipeline_name)s ORDER BY c.topic, c.partition, c.generation;

-- name: parts_not_done
-- What is lost or not done of each chain, or of "damaged" manifests; uses indexes that have only that. Adjacent ranges in one state become one
-- part. With "cells" each chain is divided into so many cells; parts in one state that begin in one cell become one
-- part, too.
WITH part AS (
    SELECT g.chain_id, g.start_offset, g.end_offset, m.id AS manifest_id,
           CASE WHEN m.state = 'running' AND NOT is_alive(m.id, m.attempt) THEN 'abandoned' ELSE m.state::text END AS state
    FROM manifest m JOIN manifest_range g ON g.manifest_id = m.id
    WHERE m.pipeline = %(pipeline_name)s AND m.state <> 'done'
    UNION ALL
    SELECT g.chain_id, g.start_offset, g.end_offset, m.id, 'damaged'
    FROM manifest m JOIN manifest_range g ON g.manifest_id = m.id
    WHERE m.id = ANY (%(damaged)s::bigint[]) AND m.state = 'done'
    UNION ALL
    SELECT g.chain_id, g.start_offset, g.end_offset, NULL, 'lost'
    FROM chain c JOIN manifest_range g ON g.chain_id = c.id AND g.kind = 'lost'
    WHERE c.pipeline = %(pipeline_name)s),
marked AS (
    SELECT *, lag(end_offset) OVER chain IS DISTINCT FROM start_offset OR lag(state) OVER chain <> state AS begins
    FROM part WINDOW chain AS (PARTITION BY chain_id ORDER BY start_offset)),
numbered AS (
    SELECT *, count(*) FILTER (WHERE begins) OVER (PARTITION BY chain_id ORDER BY start_offset) AS number FROM marked),
joined AS (
    SELECT chain_id, min(start_offset) AS start_offset, max(end_offset) AS end_offset, state,
           min(manifest_id) AS first_manifest, count(manifest_id) AS manifests
    FROM numbered GROUP BY chain_id, number, state),
scale AS MATERIALIZED (
    SELECT c.id AS chain_id, anchor.end_offset AS anchor, greatest(1, latest.end_offset - anchor.end_offset) AS span
    FROM chain c JOIN manifest_range anchor ON anchor.chain_id = c.id AND anchor.kind = 'anchor'
    CROSS JOIN LATERAL (
        SELECT r.end_offset FROM manifest_range r WHERE r.chain_id = c.id ORDER BY r.end_offset DESC LIMIT 1) latest
    WHERE c.pipeline = %(pipeline_name)s)
SELECT j.chain_id, min(j.start_offset) AS start, max(j.end_offset) AS end, j.state,
       min(j.first_manifest) AS first_manifest, sum(j.manifests)::bigint AS manifests,
       sum(j.end_offset - j.start_offset)::bigint AS offsets
FROM joined j JOIN scale s ON s.chain_id = j.chain_id
GROUP BY j.chain_id, j.state, coalesce(
    floor((j.start_offset - s.anchor)::numeric * %(cells)s::int / s.span), j.start_offset)
ORDER BY chain_id, start, state;

-- name: parts_with_dead_letters
-- Only for the newest manifests with dead letters, because each receipt is unpacked, which may take milliseconds.
WITH newest AS MATERIALIZED (
    SELECT p.manifest_id, max(p.attempt) AS attempt FROM publication p JOIN manifest m ON m.id = p.manifest_id
    WHERE m.pipeline = %(pipeline_name)s AND (p.counts ->> 'dead_lettered')::bigint > 0
    GROUP BY p.manifest_id ORDER BY p.manifest_id DESC LIMIT %(manifests)s),
counted AS MATERIALIZED (
    SELECT n.manifest_id, count ->> 'topic' AS topic, (count ->> 'partition')::int AS partition,
           (count ->> 'dead_lettered')::bigint AS records
    FROM newest n JOIN attempt a ON a.manifest_id = n.manifest_id AND a.attempt = n.attempt
    CROSS JOIN LATERAL jsonb_array_elements(a.receipt -> 'partitions') AS count
    WHERE (count ->> 'dead_lettered')::bigint > 0)
SELECT g.chain_id, min(g.start_offset) AS start, max(g.end_offset) AS end, k.records, k.manifest_id
FROM counted k JOIN manifest_range g ON g.manifest_id = k.manifest_id
JOIN chain c ON c.id = g.chain_id AND c.topic = k.topic AND c.partition = k.partition
GROUP BY g.chain_id, k.manifest_id, k.records ORDER BY g.chain_id, start;

-- name: periods
-- Runs by numbered periods of time, (start, end] and all of one length, with their manifests by state; a row without a
-- state counts the runs. The time of a run is the one up to which it read, or its cut if it did not reach it, or when
-- it was planned. Uses the index of that time, so that only the runs of these periods are read.
WITH chosen AS (
    SELECT r.id,
           ceil(extract(epoch FROM coalesce(r.planned_up_to, r.cut_at, r.planned_at) - %(start)s) / %(seconds)s)::int - 1
               AS period
    FROM run r
    WHERE r.pipeline = %(pipeline_name)s AND coalesce(r.planned_up_to, r.cut_at, r.planned_at) > %(start)s
      AND coalesce(r.planned_up_to, r.cut_at, r.planned_at) <= %(end)s),
planned AS (
    SELECT c.period, m.id,
           CASE WHEN m.state = 'running' AND NOT is_alive(m.id, m.attempt) THEN 'abandoned'
                WHEN m.state = 'done' AND m.id = ANY (%(damaged)s::bigint[]) THEN 'damaged'
                ELSE m.state::text END AS state,
           (SELECT max((p.counts ->> 'read')::bigint) FROM publication p WHERE p.manifest_id = m.id) AS read
    FROM chosen c JOIN manifest m ON m.run_id = c.id)
SELECT period, state, count(*) AS number, min(id) AS first_manifest, coalesce(sum(read), 0)::bigint AS read
FROM planned GROUP BY period, state
UNION ALL
SELECT period, NULL, count(*), NULL, 0 FROM chosen GROUP BY period
ORDER BY period, state NULLS FIRST;

-- name: undone_before
-- The manifests of runs up to a time that are not done.
SELECT count(*) AS number, min(m.id) AS first_manifest FROM manifest m JOIN run r ON r.id = m.run_id
WHERE m.pipeline = %(pipeline_name)s AND m.state <> 'done'
  AND coalesce(r.planned_up_to, r.cut_at, r.planned_at) <= %(until)s;

-- name: recent_runs
-- The newest runs, oldest first, each with its manifests: their ids, their states in the same order, and when the last
-- one was done. Looks for the lock only of attempts that have not ended.
SELECT r.id, r.planned_at, r.lag, m.ids, m.states, m.first_undone, m.done_at
FROM (SELECT id, planned_at, lag FROM run WHERE pipeline = %(pipeline_name)s
      ORDER BY planned_at DESC, id DESC LIMIT 20) r
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(id ORDER BY id), '{}') AS ids, coalesce(array_agg(state ORDER BY id), '{}') AS states,
           min(id) FILTER (WHERE state <> 'done') AS first_undone, max(done_at) AS done_at
    FROM (SELECT m.id, m.done_at,
                 CASE WHEN EXISTS (SELECT FROM attempt a WHERE a.manifest_id = m.id AND a.state = 'running')
                           AND is_alive(m.id, m.attempt) THEN 'running'
                      WHEN m.state = 'running' THEN 'abandoned' ELSE m.state::text END AS state
          FROM manifest m WHERE m.run_id = r.id) each) m
ORDER BY r.planned_at, r.id;

-- name: records_of_runs
-- How many records each run read for what is published.
SELECT m.run_id, sum(p.read)::bigint AS read
FROM manifest m
CROSS JOIN LATERAL (SELECT max((counts ->> 'read')::bigint) AS read FROM publication WHERE manifest_id = m.id) p
WHERE m.run_id = ANY (%(runs)s) AND p.read IS NOT NULL
GROUP BY m.run_id;

-- name: files_of_runs
-- The data files that readers see of each run, in all sinks, and their bytes.
SELECT m.run_id, count(*) AS files, coalesce(sum((o.object ->> 'bytes')::bigint), 0)::bigint AS bytes
FROM manifest m
JOIN standing_publication p ON p.manifest_id = m.id
JOIN attempt a ON a.manifest_id = p.manifest_id AND a.attempt = p.attempt
CROSS JOIN LATERAL jsonb_array_elements(a.receipt -> 'objects') AS o (object)
WHERE m.run_id = ANY (%(runs)s) AND o.object ->> 'sink' = p.sink AND o.object ->> 'kind' = 'data'
  AND o.object ->> 'path' <> ''
GROUP BY m.run_id;

-- name: lags_since
-- The lags that plans have measured since a time, oldest first; for each period the largest.
SELECT max(planned_at) AS at, max(lag) AS lag, max(planned_at) - max(planned_at - published_before) AS published_before
FROM run
WHERE pipeline = %(pipeline_name)s AND planned_at > %(since)s AND lag IS NOT NULL
GROUP BY floor(extract(epoch FROM planned_at - %(since)s) / %(seconds)s) ORDER BY at;

-- name: recent_run
-- The time up to which the oldest of the newest runs read.
SELECT min(planned_up_to) AS planned_up_to FROM (
    SELECT planned_up_to FROM run WHERE pipeline = %(pipeline_name)s AND planned_up_to IS NOT NULL
    ORDER BY planned_up_to DESC LIMIT %(runs)s) newest;

-- name: newest_done
SELECT m.id, r.run_key, m.done_at
FROM (SELECT m.id, m.run_id, m.done_at FROM manifest m
      WHERE m.pipeline = %(pipeline_name)s AND m.state = 'done' ORDER BY m.id DESC LIMIT 100) m
JOIN run r ON r.id = m.run_id;

-- name: newest_counts
-- The counts of the newest done manifests that read records.
SELECT p.counts
FROM (SELECT m.id FROM manifest m WHERE m.pipeline = %(pipeline_name)s AND m.state = 'done' ORDER BY m.id DESC LIMIT 50) m
CROSS JOIN LATERAL (
    SELECT p.counts FROM standing_publication p WHERE p.manifest_id = m.id
    ORDER BY p.attempt DESC, coalesce((p.counts ->> 'stale')::bigint, 0) DESC LIMIT 1) p
WHERE (p.counts ->> 'read')::bigint > 0 ORDER BY m.id DESC LIMIT 2;

-- name: current_sinks
-- A part of two statements below: the sinks that nobody has retired. As an array they are read once, and not for each
-- manifest.
SELECT name FROM sink WHERE pipeline = %(pipeline_name)s AND retired_at IS NULL

-- name: stale_in_sinks
-- For each sink the newest manifest with rows, if the table already had a newer row for each of its rows. Looks at the
-- newest done manifests. A manifest does not count if rows of later ranges were published behind each of its ranges:
-- those are newer, too. The conditions are written as counts, so that PostgreSQL looks up ranges by index, and only for
-- stale manifests and newer ones.
WITH shown AS MATERIALIZED (
    SELECT p.manifest_id, p.sink, (p.counts ->> 'stale')::bigint > 0
        AND (p.counts ->> 'stale')::bigint = (p.counts ->> 'written')::bigint - (p.counts ->> 'superseded')::bigint
        AS is_stale
    FROM (SELECT m.id FROM manifest m WHERE m.pipeline = %(pipeline_name)s AND m.state = 'done'
          ORDER BY m.id DESC LIMIT 50) m
    JOIN publication p ON p.manifest_id = m.id AND p.sink = ANY (ARRAY(
        -- include: current_sinks
    ))
    WHERE (p.counts ->> 'written')::bigint > 0),
counting AS NOT MATERIALIZED (
    SELECT * FROM shown s WHERE (
        SELECT count(*) FROM manifest_range r WHERE r.manifest_id = s.manifest_id AND (
            SELECT true FROM manifest_range later
            WHERE later.chain_id = r.chain_id AND later.start_offset >= r.end_offset AND (
                SELECT (made.counts ->> 'written')::bigint > 0 FROM publication made
                WHERE made.manifest_id = later.manifest_id AND made.sink = s.sink)
            ORDER BY later.start_offset LIMIT 1) IS NULL) > 0)
SELECT DISTINCT ON (s.sink) s.manifest_id, s.sink FROM counting s
WHERE s.is_stale AND (
    SELECT count(*) FROM counting newer
    WHERE newer.sink = s.sink AND newer.manifest_id > s.manifest_id AND newer.is_stale IS NOT TRUE) = 0
ORDER BY s.sink, s.manifest_id DESC;

-- name: published_sums
-- The published records, each once: all sinks count the same records, so the sink with the highest counts stands for a
-- manifest. Done manifests are counted by their sums.
SELECT coalesce(sum(read), 0)::bigint AS read, coalesce(sum(written), 0)::bigint AS written,
       coalesce(sum(dead_lettered), 0)::bigint AS dead_lettered
FROM (
    SELECT read, written, dead_lettered FROM done_sum WHERE pipeline = %(pipeline_name)s AND sink IS NULL
    UNION ALL
    SELECT max((p.counts ->> 'read')::bigint), max((p.counts ->> 'written')::bigint),
           max((p.counts ->> 'dead_lettered')::bigint)
    FROM manifest m JOIN publication p ON p.manifest_id = m.id
    WHERE m.pipeline = %(pipeline_name)s AND m.state <> 'done' GROUP BY m.id) counted;

-- name: sums_of_hours
SELECT coalesce((SELECT sum(late) FROM done_sum WHERE pipeline = %(pipeline_name)s), 0)::bigint AS late,
       (SELECT count(*) FROM hour WHERE pipeline = %(pipeline_name)s AND complete_at IS NULL) AS incomplete;

-- name: pipelines
SELECT name FROM pipeline WHERE retired_at IS NULL OR %(retired)s ORDER BY name;

-- name: retired_at
SELECT retired_at FROM pipeline WHERE name = %(pipeline_name)s;

-- name: retire_pipeline
UPDATE pipeline SET retired_at = CASE WHEN %(retired)s THEN now() END WHERE name = %(pipeline_name)s;

-- name: former_names
-- The former names of a pipeline; also the row of this name, if it is itself a former name.
SELECT name, pipeline, until, in_targets FROM former_name
WHERE %(pipeline_name)s IN (name, pipeline) ORDER BY until, name;

-- name: rename_pipeline
SELECT rename_pipeline(%(old)s, %(new)s);

-- name: end_pipeline_rename
UPDATE former_name SET in_targets = false WHERE pipeline = %(new)s AND in_targets;

-- name: planned_alike
-- Pipelines that are not retired, have sinks with these names and targets, and had attempts with these settings; with
-- their topics and the pipelines that they share folders with.
SELECT p.name, ARRAY(SELECT DISTINCT c.topic FROM chain c WHERE c.pipeline = p.name) AS topics,
       ARRAY(SELECT unnest(f.shared_with) FROM stream_folders f WHERE f.pipeline = p.name) AS shared_with
FROM pipeline p
WHERE p.name <> %(pipeline_name)s AND p.retired_at IS NULL
  AND NOT EXISTS (
      SELECT FROM unnest(%(names)s::text[], %(targets)s::text[]) AS own (name, target)
      WHERE NOT EXISTS (SELECT FROM sink s WHERE s.pipeline = p.name AND s.retired_at IS NULL
                        AND (s.name, s.target) = (own.name, own.target)))
  AND EXISTS (SELECT FROM manifest m JOIN attempt a ON a.manifest_id = m.id   -- of adopted ones the settings are not known
              WHERE m.pipeline = p.name AND split_part(a.fingerprint, '+', 1) = ANY (%(fingerprints)s || '{adopted}'::text[]))
ORDER BY p.name;

-- name: lock_attempt
SELECT pg_advisory_lock(attempt_lock(%(manifest_id)s, %(attempt)s));

-- name: attempt_lock
SELECT attempt_lock(%(manifest_id)s, %(attempt)s) AS number;

-- name: now
SELECT clock_timestamp() AS now;

-- name: current_user
SELECT current_user::text AS name;

-- name: unlock_attempt
SELECT pg_advisory_unlock(attempt_lock(%(manifest_id)s, %(attempt)s));

-- name: start
WITH started AS (
    UPDATE manifest
    SET attempt = attempt + 1, reason = NULL, retry_at = NULL,
        state = CASE state WHEN 'done' THEN state ELSE 'running' END
    WHERE id = %(manifest_id)s AND state IN ('planned', 'running', 'failed', 'done')
    RETURNING id, attempt)
INSERT INTO attempt (manifest_id, attempt, fingerprint, actor)
SELECT id, attempt, %(fingerprint)s, %(actor)s FROM started
RETURNING attempt;

-- name: lease_attempt
-- Only for the newest attempt, and only while it has not ended.
INSERT INTO lease (manifest_id, attempt, until)
SELECT m.id, m.attempt, clock_timestamp() + %(seconds)s * interval '1 second'
FROM manifest m JOIN attempt a ON a.manifest_id = m.id AND a.attempt = m.attempt
WHERE m.id = %(manifest_id)s AND m.attempt = %(attempt)s AND a.state = 'running'
ON CONFLICT (manifest_id) DO UPDATE SET attempt = EXCLUDED.attempt, until = EXCLUDED.until
WHERE lease.attempt <= EXCLUDED.attempt
RETURNING until;

-- name: attempts_by
SELECT a.manifest_id, a.actor FROM attempt a JOIN manifest m ON m.id = a.manifest_id
WHERE m.pipeline = %(pipeline_name)s AND starts_with(a.actor, %(prefix)s) ORDER BY a.started_at;

-- name: attempts_alive
SELECT a.manifest_id, a.attempt, a.actor
FROM manifest m JOIN attempt a ON a.manifest_id = m.id AND a.attempt = m.attempt
WHERE m.id = ANY (%(manifests)s) AND (m.state <> 'done' OR %(also_replays)s) AND is_alive(m.id, m.attempt)
ORDER BY a.manifest_id;

-- name: fence_lower_attempts
UPDATE attempt SET state = 'fenced', ended_at = now(), error = 'attempt ' || %(attempt)s || ' took over'
WHERE manifest_id = %(manifest_id)s AND attempt < %(attempt)s AND state = 'running';

-- name: unblock
UPDATE manifest SET state = 'planned', reason = 'released: ' || reason
WHERE id = %(manifest_id)s AND state = 'blocked' RETURNING id;

-- name: newest_attempt
SELECT attempt FROM manifest WHERE id = %(manifest_id)s;

-- name: store_receipt
-- Only for the newest attempt, and only while the source is not known to have lost the records that were planned. The
-- same statement declares the unpublished output of every lower attempt taken back, in sinks that can take back.
WITH newest AS (SELECT id FROM manifest WHERE id = %(manifest_id)s AND attempt = %(attempt)s FOR UPDATE),
stored AS (
    UPDATE attempt a SET receipt = %(receipt)s, sinks = %(sinks)s, note = %(note)s FROM newest
    WHERE a.manifest_id = newest.id AND a.attempt = %(attempt)s AND a.state = 'running'
      AND NOT EXISTS (SELECT FROM range_beyond_generation o WHERE o.manifest_id = newest.id)
    RETURNING a.manifest_id, a.attempt),
declared AS (
    UPDATE attempt lower SET taken_back = ARRAY(
        SELECT DISTINCT named.sink FROM unnest(lower.taken_back || %(takes_back)s::text[]) AS named (sink)
        WHERE (named.sink = ANY (lower.taken_back) OR lower.receipt -> 'sinks' ? named.sink)
          AND NOT EXISTS (SELECT FROM publication p WHERE p.manifest_id = lower.manifest_id
                          AND p.sink = named.sink AND p.attempt = lower.attempt)
        ORDER BY 1)
    FROM stored
    WHERE lower.manifest_id = stored.manifest_id AND lower.attempt < stored.attempt AND lower.receipt IS NOT NULL)
SELECT attempt FROM stored;

-- name: store_epochs
-- The counts of the partitions, now with the leader epochs that were read from the log after the receipt was stored.
UPDATE attempt SET receipt = jsonb_set(receipt, '{partitions}', %(partitions)s)
WHERE manifest_id = %(manifest_id)s AND attempt = %(attempt)s AND state = 'running' AND receipt IS NOT NULL;

-- name: take_back
-- Declared before anything is removed: from here on the attempt is never recovered or published in the sink. Not for a
-- published attempt; the row of the manifest is locked, so no publication can come in between.
WITH locked AS (SELECT id FROM manifest WHERE id = %(manifest_id)s FOR UPDATE)
UPDATE attempt a SET taken_back = array_append(array_remove(a.taken_back, %(sink)s::text), %(sink)s::text)
FROM locked
WHERE a.manifest_id = locked.id AND a.attempt = %(attempt)s
  AND NOT EXISTS (SELECT FROM publication p WHERE p.manifest_id = a.manifest_id AND p.sink = %(sink)s
                  AND p.attempt = a.attempt)
RETURNING a.attempt;

-- name: may_put
-- Whether an attempt is the newest, and its output in the sink was not taken back.
SELECT m.attempt = a.attempt AND NOT %(sink)s::text = ANY (a.taken_back) AS allowed
FROM manifest m JOIN attempt a ON a.manifest_id = m.id AND a.attempt = %(attempt)s WHERE m.id = %(manifest_id)s;

-- name: receipts
-- Only attempts with a receipt may have left objects.
SELECT attempt, receipt, fingerprint, taken_back
FROM attempt WHERE manifest_id = %(manifest_id)s AND receipt IS NOT NULL ORDER BY attempt DESC;

-- name: receipt
SELECT receipt FROM attempt WHERE manifest_id = %(manifest_id)s AND attempt = %(attempt)s;

-- name: publish
-- Only the newest attempt may change a publication, never to an attempt below the published one, and never to one whose
-- output was taken back.
WITH newest AS (
    SELECT id FROM manifest WHERE id = %(manifest_id)s AND attempt = %(newest)s FOR UPDATE)
INSERT INTO publication (manifest_id, sink, attempt, settled, digest, counts)
SELECT newest.id, %(sink)s, a.attempt, %(newest)s, %(digest)s, %(counts)s
FROM newest JOIN attempt a ON a.manifest_id = newest.id AND a.attempt = %(attempt)s
WHERE NOT %(sink)s::text = ANY (a.taken_back)
ON CONFLICT (manifest_id, sink) DO UPDATE
SET attempt = EXCLUDED.attempt, settled = EXCLUDED.settled, digest = EXCLUDED.digest, counts = EXCLUDED.counts,
    published_at = now()
WHERE publication.attempt <= EXCLUDED.attempt
RETURNING attempt;

-- name: lock_hours_of
-- Makes receipts, publications and the closing of hours wait for one another. Always taken after the manifest's row
-- lock.
SELECT pg_advisory_xact_lock(1414089814, hashtext(pipeline)) FROM manifest WHERE id = %(manifest_id)s;

-- name: lock_hours
-- A process that is paused here soon loses its session, because receipts and publications wait for it.
SELECT pg_advisory_xact_lock(1414089814, hashtext(%(pipeline_name)s)),
       set_config('idle_in_transaction_session_timeout', '10s', true);

-- name: reopen_hours
-- Opens the hours of the rows of an attempt, and of the published rows of its manifest.
UPDATE hour h SET complete_at = NULL
FROM attempt a JOIN manifest m ON m.id = a.manifest_id
CROSS JOIN LATERAL jsonb_object_keys(a.receipt -> 'hours') AS key
WHERE a.manifest_id = %(manifest_id)s
  AND (a.attempt = %(attempt)s OR EXISTS (
      SELECT FROM publication p WHERE p.manifest_id = a.manifest_id AND p.attempt = a.attempt))
  AND h.pipeline = m.pipeline AND h.hour = (key || ':00Z')::timestamptz AND h.complete_at IS NOT NULL;

-- name: reopen_shown_hours
-- Opens the hours of the published rows of a manifest.
UPDATE hour h SET complete_at = NULL
FROM manifest m
JOIN publication p ON p.manifest_id = m.id
JOIN attempt a ON a.manifest_id = p.manifest_id AND a.attempt = p.attempt
CROSS JOIN LATERAL jsonb_object_keys(a.receipt -> 'hours') AS key
WHERE m.id = %(manifest_id)s
  AND h.pipeline = m.pipeline AND h.hour = (key || ':00Z')::timestamptz AND h.complete_at IS NOT NULL;

-- name: count_hours
-- Stores the rows by hour of the newest attempt that any sink shows, in place of the old counts. An hour in which only
-- an older attempt has rows, which another sink still shows, gets 0 rows. An hour whose counts change is opened again.
WITH shown AS (
    SELECT p.manifest_id, p.attempt, p.attempt = max(p.attempt) OVER (PARTITION BY p.manifest_id) AS newest
    FROM (SELECT DISTINCT manifest_id, attempt FROM standing_publication
          WHERE manifest_id = ANY (%(manifest_ids)s::bigint[])) p),
fresh AS (
    SELECT shown.manifest_id, (part.key || ':00Z')::timestamptz AS hour,
           coalesce(sum((part.value ->> 0)::bigint) FILTER (WHERE shown.newest), 0) AS rows,
           coalesce(sum((part.value ->> 1)::bigint) FILTER (WHERE shown.newest), 0) AS late
    FROM shown JOIN attempt a ON a.manifest_id = shown.manifest_id AND a.attempt = shown.attempt
    CROSS JOIN LATERAL jsonb_each(a.receipt -> 'hours') AS part
    GROUP BY 1, 2),
changed AS (
    SELECT manifest_id, hour, f.rows, f.late
    FROM fresh f
    FULL JOIN (SELECT manifest_id, hour, rows, late FROM manifest_hour
               WHERE manifest_id = ANY (%(manifest_ids)s::bigint[])) b USING (manifest_id, hour)
    WHERE (f.rows, f.late) IS DISTINCT FROM (b.rows, b.late)),
removed AS (
    DELETE FROM manifest_hour h USING changed c
    WHERE h.manifest_id = c.manifest_id AND h.hour = c.hour AND c.rows IS NULL),
counted AS (
    INSERT INTO manifest_hour (manifest_id, pipeline, hour, rows, late)
    SELECT m.id, m.pipeline, c.hour, c.rows, c.late
    FROM changed c JOIN manifest m ON m.id = c.manifest_id WHERE c.rows IS NOT NULL
    ON CONFLICT (manifest_id, hour) DO UPDATE SET rows = EXCLUDED.rows, late = EXCLUDED.late)
INSERT INTO hour (pipeline, hour)
SELECT DISTINCT m.pipeline, c.hour FROM changed c JOIN manifest m ON m.id = c.manifest_id
ON CONFLICT (pipeline, hour) DO UPDATE SET complete_at = NULL
RETURNING pipeline, hour;

-- name: sum_hours
UPDATE hour h SET rows = summed.rows, late = summed.late
FROM (
    SELECT part.hour, coalesce(sum(c.rows), 0) AS rows, coalesce(sum(c.late), 0) AS late
    FROM unnest(%(hours)s::timestamptz[]) AS part (hour)
    LEFT JOIN manifest_hour c ON c.pipeline = %(pipeline_name)s AND c.hour = part.hour
    GROUP BY part.hour) summed
WHERE h.pipeline = %(pipeline_name)s AND h.hour = summed.hour;

-- name: fill_hours
-- Inserts a row for every hour, also without records, from the first day with hours since a time up to another time.
INSERT INTO hour (pipeline, hour)
SELECT %(pipeline_name)s, missing.hour
FROM (SELECT date_trunc('day', min(hour), 'UTC') AS hour FROM hour
      WHERE pipeline = %(pipeline_name)s AND hour >= %(since)s) earliest
CROSS JOIN LATERAL generate_series(earliest.hour, %(until)s::timestamptz - interval '1 microsecond', '1 hour')
    AS missing (hour)
WHERE NOT EXISTS (SELECT FROM hour h WHERE h.pipeline = %(pipeline_name)s AND h.hour = missing.hour)
ON CONFLICT DO NOTHING;

-- name: held_hours
-- Hours that cannot be closed: a live attempt with a receipt has rows of them, or a replay has not reached every sink.
SELECT DISTINCT (key || ':00Z')::timestamptz AS hour, held.id AS manifest_id, held.at_work
FROM (
    SELECT m.id, m.attempt, true AS at_work FROM manifest m
    JOIN attempt a ON a.manifest_id = m.id AND a.attempt = m.attempt AND a.state = 'running'
    WHERE m.pipeline = %(pipeline_name)s AND a.receipt IS NOT NULL AND is_alive(m.id, a.attempt)
    UNION ALL
    SELECT m.id, m.attempt, false FROM manifest m WHERE m.id = ANY (%(behind)s::bigint[])) held
JOIN attempt a ON a.manifest_id = held.id AND a.receipt IS NOT NULL AND (a.attempt = held.attempt OR EXISTS (
    SELECT FROM publication p WHERE p.manifest_id = a.manifest_id AND p.attempt = a.attempt))
CROSS JOIN LATERAL jsonb_object_keys(a.receipt -> 'hours') AS key;

-- name: close_hours
-- Uses the clock, not the begin of the transaction: it may have waited for publications since then.
UPDATE hour SET revision = revision + 1, complete_at = clock_timestamp()
WHERE pipeline = %(pipeline_name)s AND complete_at IS NULL AND hour <= %(last)s
  AND hour <> ALL (%(held)s::timestamptz[])
RETURNING hour;

-- name: open_hours
-- The oldest first; uses an index that has only incomplete hours.
SELECT hour FROM hour WHERE pipeline = %(pipeline_name)s AND complete_at IS NULL ORDER BY hour LIMIT 100;

-- name: closable_since
-- The time since which a run could have closed the hour that waits longest. All these hours are wholly published, and
-- could be complete with a cut at "due". The time is the latest of these: the first run that planned as far, the last
-- attempt at a manifest with rows of the hour, the last done manifest of runs up to that run, the last decision (it may
-- have opened hours), and the last successful closing (an hour that it left open was not due then, by another
-- lateness).
WITH waiting AS (
    SELECT r.id AS run_id, greatest(r.planned_at, (
        SELECT max(coalesce(a.ended_at, a.started_at)) FROM manifest_hour h JOIN attempt a ON a.manifest_id = h.manifest_id
        WHERE h.pipeline = %(pipeline_name)s AND h.hour = due.hour)) AS since
    FROM unnest(%(hours)s::timestamptz[], %(dues)s::timestamptz[]) AS due (hour, at)
    CROSS JOIN LATERAL (
        SELECT id, planned_at FROM run WHERE pipeline = %(pipeline_name)s AND planned_up_to >= due.at
        ORDER BY planned_up_to, id LIMIT 1) r
    ORDER BY since LIMIT 1)
SELECT greatest(
    w.since,
    (SELECT max(m.done_at) FROM manifest m WHERE m.pipeline = %(pipeline_name)s AND m.run_id <= w.run_id),
    (SELECT max(e.at) FROM event e WHERE e.subject = 'decision' AND e.what ->> 'pipeline' = %(pipeline_name)s),
    (SELECT max(newest.complete_at) FROM (
        SELECT complete_at FROM hour WHERE pipeline = %(pipeline_name)s ORDER BY hour DESC LIMIT 1000) newest)) AS since
FROM waiting w;

-- name: hours
-- With "newest" only so many of the newest hours, and all incomplete ones. With "limit" at most so many of the newest.
-- Incomplete hours come from indexes of their own, because one may be years old: those that are open, and those with
-- rows of "damaged" manifests.
SELECT h.hour, h.revision, h.rows, h.late, h.complete_at, coalesce((
    SELECT array_agg(c.manifest_id ORDER BY c.manifest_id) FROM manifest_hour c
    WHERE c.pipeline = h.pipeline AND c.hour = h.hour), '{}') AS manifests, coalesce((
    SELECT array_agg(DISTINCT d.sink ORDER BY d.sink) FROM manifest_hour c
    JOIN accepted_damage d ON d.manifest_id = c.manifest_id
    JOIN sink s ON s.pipeline = h.pipeline AND s.name = d.sink AND s.retired_at IS NULL
    LEFT JOIN publication p ON p.manifest_id = d.manifest_id AND p.sink = d.sink
    WHERE c.pipeline = h.pipeline AND c.hour = h.hour AND d.attempt = coalesce(p.attempt, d.attempt)), '{}') AS given_up
FROM (
    (SELECT * FROM hour
     WHERE pipeline = %(pipeline_name)s AND NOT %(incomplete)s
       AND (%(before)s::timestamptz IS NULL OR hour < %(before)s)
     ORDER BY hour DESC LIMIT coalesce(%(newest)s::int, %(limit)s::int))
    UNION
    (SELECT * FROM hour
     WHERE pipeline = %(pipeline_name)s AND complete_at IS NULL AND (%(incomplete)s OR %(newest)s::int IS NOT NULL)
       AND (%(before)s::timestamptz IS NULL OR hour < %(before)s))
    UNION
    (SELECT * FROM hour
     WHERE pipeline = %(pipeline_name)s AND (%(incomplete)s OR %(newest)s::int IS NOT NULL)
       AND hour IN (SELECT c.hour FROM manifest_hour c WHERE c.manifest_id = ANY (%(damaged)s::bigint[]))
       AND (%(before)s::timestamptz IS NULL OR hour < %(before)s))
    ORDER BY hour DESC LIMIT %(limit)s::int) h
ORDER BY h.hour;

-- name: without_rows
-- For each pair of times the counts of records that became no rows, in the runs that read what arrived between them:
-- runs after "since" up to the first one that read up to "until", also runs that name no time. A run counts with its
-- manifests and those that cover it. On a chain that has ended since, all lost offsets count, because they were given
-- up when the chain ended. With "sink" only its publications count, because another sink may show the output of other
-- code.
SELECT asked.place, coalesce(counted.dead_lettered, 0)::bigint AS dead_lettered,
       coalesce(counted.filtered, 0)::bigint AS filtered, coalesce(counted.deduplicated, 0)::bigint AS deduplicated,
       coalesce(gone.offsets, 0)::bigint AS lost
FROM unnest(%(since)s::timestamptz[], %(until)s::timestamptz[]) WITH ORDINALITY AS asked (since, until, place)
CROSS JOIN LATERAL (
    SELECT array_agg(r.id) AS ids, (array_agg(r.id ORDER BY r.planned_up_to DESC NULLS LAST, r.id DESC))[1] AS last
    FROM run r
    WHERE r.pipeline = %(pipeline_name)s AND coalesce(r.planned_up_to, r.cut_at, r.planned_at) > asked.since
      AND coalesce(r.planned_up_to, r.cut_at, r.planned_at) <= coalesce((
        SELECT min(planned_up_to) FROM run WHERE pipeline = %(pipeline_name)s AND planned_up_to >= asked.until),
        'infinity')) runs
CROSS JOIN LATERAL (
    SELECT sum(part.dead_lettered) AS dead_lettered, sum(part.filtered) AS filtered,
           sum(part.deduplicated) AS deduplicated
    FROM (
        SELECT max((p.counts ->> 'dead_lettered')::bigint) AS dead_lettered,
               max((p.counts ->> 'filtered')::bigint) AS filtered,
               max((p.counts ->> 'deduplicated')::bigint) AS deduplicated
        FROM (SELECT DISTINCT unnest(r.manifests || r.covered_by) AS id FROM run r WHERE r.id = ANY (runs.ids)) stands
        JOIN standing_publication p ON p.manifest_id = stands.id
        WHERE p.sink = coalesce(%(sink)s::text, p.sink)
        GROUP BY stands.id) part) counted
CROSS JOIN LATERAL (
    SELECT sum(least(l.end_offset, e.end_offset) - greatest(l.start_offset, coalesce(b.end_offset, 0))) AS offsets
    FROM (SELECT id FROM run WHERE pipeline = %(pipeline_name)s AND planned_up_to <= asked.since
          ORDER BY planned_up_to DESC, id DESC LIMIT 1) earlier
    RIGHT JOIN chain c ON true
    JOIN manifest_range l ON l.chain_id = c.id AND l.kind = 'lost'
    LEFT JOIN run_end e ON e.chain_id = c.id AND e.run_id = runs.last
    LEFT JOIN run_end b ON b.chain_id = c.id AND b.run_id = earlier.id
    WHERE c.pipeline = %(pipeline_name)s AND l.end_offset > coalesce(b.end_offset, 0)
      AND (l.start_offset < e.end_offset OR (e.run_id IS NULL AND c.retired_at IS NOT NULL AND EXISTS (
           SELECT FROM run_end x WHERE x.chain_id = c.id AND x.run_id = ANY (runs.ids || earlier.id))))) gone
ORDER BY asked.place;

-- name: given_up
-- The sinks in which output was given up, of records that arrived between two times.
SELECT DISTINCT d.sink
FROM run r
CROSS JOIN LATERAL (SELECT DISTINCT unnest(r.manifests || r.covered_by) AS id) stands
JOIN accepted_damage d ON d.manifest_id = stands.id
JOIN sink s ON s.pipeline = r.pipeline AND s.name = d.sink AND s.retired_at IS NULL
LEFT JOIN publication p ON p.manifest_id = d.manifest_id AND p.sink = d.sink
WHERE r.pipeline = %(pipeline_name)s AND coalesce(r.planned_up_to, r.cut_at, r.planned_at) > %(since)s
  AND coalesce(r.planned_up_to, r.cut_at, r.planned_at) <= coalesce((
    SELECT min(planned_up_to) FROM run WHERE pipeline = %(pipeline_name)s AND planned_up_to >= %(until)s), 'infinity')
  AND d.attempt = coalesce(p.attempt, d.attempt)
ORDER BY d.sink;

-- name: without_success_file
-- Complete hours whose newest revision has no success files in a sink yet. Counts the rows that this sink shows: if
-- another sink shows a newer attempt at a manifest, those of the attempt in this sink. An hour is not whole if the sink
-- does not show one of its manifests: the sink was added later and is not filled, or never will be.
WITH due AS MATERIALIZED (
    SELECT h.hour, h.revision, s.revision IS NOT NULL AS shown
    FROM hour h LEFT JOIN success_file s ON s.pipeline = h.pipeline AND s.hour = h.hour AND s.sink = %(sink)s
    WHERE h.pipeline = %(pipeline_name)s AND h.complete_at IS NOT NULL AND h.revision > coalesce(s.revision, 0))
SELECT d.*, coalesce(live.whole, true) AS whole, coalesce(live.rows, 0)::bigint AS rows,
       coalesce(live.late, 0)::bigint AS late
FROM due d
CROSS JOIN LATERAL (
    SELECT bool_and(p.attempt IS NOT NULL) AS whole,
           sum(CASE WHEN own.attempt IS NULL THEN c.rows ELSE coalesce((own.part ->> 0)::bigint, 0) END) AS rows,
           sum(CASE WHEN own.attempt IS NULL THEN c.late ELSE coalesce((own.part ->> 1)::bigint, 0) END) AS late
    FROM manifest_hour c
    LEFT JOIN publication p ON p.manifest_id = c.manifest_id AND p.sink = %(sink)s
    LEFT JOIN LATERAL (
        SELECT a.attempt, a.receipt -> 'hours' -> to_char(c.hour AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24') AS part
        FROM attempt a WHERE a.manifest_id = p.manifest_id AND a.attempt = p.attempt AND EXISTS (
            SELECT FROM publication other WHERE other.manifest_id = p.manifest_id AND other.attempt > p.attempt)) own
        ON true
    WHERE c.pipeline = %(pipeline_name)s AND c.hour = d.hour) live
ORDER BY d.hour;

-- name: given_up_files
-- The data files of a sink's publications that were given up, and the hours of their manifests.
SELECT object ->> 'path' AS path, object ->> 'topic' AS topic, ARRAY(
    SELECT (key || ':00Z')::timestamptz FROM jsonb_object_keys(a.receipt -> 'hours') AS key) AS hours
FROM (
    SELECT d.manifest_id, d.attempt, array_agg(d.path) AS paths
    FROM accepted_damage d JOIN manifest m ON m.id = d.manifest_id AND m.pipeline = %(pipeline_name)s
    WHERE d.sink = %(sink)s AND d.path <> '' GROUP BY d.manifest_id, d.attempt) gone
JOIN publication p ON p.manifest_id = gone.manifest_id AND p.sink = %(sink)s AND p.attempt = gone.attempt
JOIN attempt a ON a.manifest_id = p.manifest_id AND a.attempt = p.attempt
CROSS JOIN LATERAL jsonb_array_elements(a.receipt -> 'objects') AS object
WHERE object ->> 'sink' = %(sink)s AND object ->> 'kind' = 'data' AND object ->> 'path' = ANY (gone.paths);

-- name: note_success_files
INSERT INTO success_file (pipeline, sink, hour, revision)
SELECT %(pipeline_name)s, %(sink)s, part.hour, part.revision
FROM unnest(%(hours)s::timestamptz[], %(revisions)s::int[]) AS part (hour, revision)
ON CONFLICT (pipeline, sink, hour) DO UPDATE
SET revision = greatest(success_file.revision, EXCLUDED.revision);

-- name: forget_success_files
DELETE FROM success_file s USING unnest(%(hours)s::timestamptz[], %(revisions)s::int[]) AS part (hour, revision)
WHERE s.pipeline = %(pipeline_name)s AND s.sink = %(sink)s AND s.hour = part.hour AND s.revision <= part.revision;

-- name: rename_in_success_files
UPDATE success_file SET sink = %(new)s WHERE pipeline = %(pipeline_name)s AND sink = %(old)s;

-- name: hours_since
SELECT hour, revision, complete_at IS NOT NULL AS complete, told
FROM hour WHERE pipeline = %(pipeline_name)s AND hour >= %(since)s ORDER BY hour;

-- name: tellers
-- The DAG runs of which it is not known yet whether they have announced their hours.
SELECT DISTINCT told_by FROM hour WHERE pipeline = %(pipeline_name)s AND told_by IS NOT NULL;

-- name: settle_told
UPDATE hour SET told = CASE WHEN %(told)s THEN told ELSE told_before END, told_before = 0, told_by = NULL
WHERE pipeline = %(pipeline_name)s AND told_by = %(dag_run)s;

-- name: tell_hours
UPDATE hour SET told_before = CASE WHEN told_by IS NULL THEN told ELSE told_before END, told = revision,
                told_by = %(dag_run)s
WHERE pipeline = %(pipeline_name)s AND hour = ANY (%(hours)s::timestamptz[]);

-- name: finish
UPDATE manifest m SET state = 'done', done_at = coalesce(done_at, now()), reason = NULL
WHERE id = %(manifest_id)s AND attempt = %(attempt)s AND state IN ('running', 'done')
  AND (state = 'done' OR NOT EXISTS (
      SELECT FROM unnest(%(sinks)s::text[]) AS wanted (sink)
      WHERE NOT EXISTS (SELECT FROM publication p WHERE p.manifest_id = m.id AND p.sink = wanted.sink)
        AND NOT EXISTS (SELECT FROM given_up g WHERE g.manifest_id = m.id AND g.sink = wanted.sink)))
RETURNING id;

-- name: end_attempt
UPDATE attempt SET state = %(state)s, ended_at = now(), error = %(error)s
WHERE manifest_id = %(manifest_id)s AND attempt = %(attempt)s AND state = 'running' RETURNING attempt;

-- name: fail
UPDATE manifest SET state = 'failed', reason = %(reason)s, retry_at = NULL, silent = %(silent)s
WHERE id = %(manifest_id)s AND attempt = %(attempt)s AND state = 'running' RETURNING id;

-- name: note_failed_manifests
UPDATE manifest SET state = 'failed', reason = %(reason)s, retry_at = %(retry_at)s, silent = %(silent)s
WHERE id = ANY (%(ids)s) AND state = ANY (%(states)s::manifest_state[]) AND NOT is_alive(id, attempt) RETURNING id;

-- name: block
UPDATE manifest SET state = 'blocked', reason = %(reason)s
WHERE id = %(manifest_id)s AND attempt = %(attempt)s AND state = 'running' RETURNING id;

-- name: published_objects
SELECT p.manifest_id, p.target AS root, o.object
FROM standing_publication p
JOIN attempt a ON a.manifest_id = p.manifest_id AND a.attempt = p.attempt
CROSS JOIN LATERAL jsonb_array_elements(a.receipt -> 'objects') AS o (object)
WHERE (%(pipeline_name)s::text IS NULL OR p.pipeline = %(pipeline_name)s) AND o.object ->> 'sink' = p.sink
  AND (%(ids)s::bigint[] IS NULL OR p.manifest_id = ANY (%(ids)s) AND a.manifest_id = ANY (%(ids)s))
  AND o.object ->> 'path' <> ''   -- rows of a table are no objects
  AND p.target ~ '^(/|[a-z][a-z0-9]*://)'   -- files of a table are read through the table
  AND NOT EXISTS (SELECT FROM accepted_damage d WHERE d.manifest_id = p.manifest_id AND d.sink = p.sink
                  AND d.attempt = p.attempt AND d.path = o.object ->> 'path')
ORDER BY p.manifest_id, o.object ->> 'path';

-- name: evidence_apart
-- Manifests whose evidence in a sink is not that of the published attempt; usually there are few. "first", the lowest
-- id, limits how many publications are read.
SELECT held.manifest_id
FROM unnest(%(manifests)s::bigint[], %(attempts)s::int[]) AS held (manifest_id, attempt)
WHERE NOT EXISTS (SELECT FROM publication p WHERE p.manifest_id = held.manifest_id AND p.sink = %(sink)s
                  AND p.manifest_id >= %(first)s
                  AND p.attempt = held.attempt)
ORDER BY held.manifest_id;

-- name: is_of_retired_sink
SELECT EXISTS (SELECT FROM attempt_of_retired_sink
               WHERE manifest_id = %(manifest_id)s AND attempt = %(attempt)s) AS retired;

-- name: out_of_step
-- Done manifests above an id whose newest evidence in a sink is not that of the published attempt, or is missing.
-- Compares publications with the evidence first: in most runs all agree, and then no manifest is read.
WITH apart AS MATERIALIZED (
    SELECT p.manifest_id, p.attempt AS published, held.attempt AS evidence
    FROM publication p
    LEFT JOIN unnest(%(manifests)s::bigint[], %(attempts)s::int[]) AS held (manifest_id, attempt)
        ON held.manifest_id = p.manifest_id
    WHERE p.manifest_id > %(above)s AND p.sink = %(sink)s AND held.attempt IS DISTINCT FROM p.attempt)
SELECT a.manifest_id, a.published, a.evidence
FROM apart a
WHERE EXISTS (SELECT FROM manifest m WHERE m.id = a.manifest_id AND m.pipeline = %(pipeline_name)s AND m.state = 'done')
  AND NOT EXISTS (SELECT FROM accepted_damage d WHERE d.manifest_id = a.manifest_id AND d.sink = %(sink)s
                  AND d.attempt = a.published AND d.path = '')
ORDER BY a.manifest_id;

-- name: note_missing
INSERT INTO missing_output (manifest_id, sink, settled, only_evidence, lost_values, what, next_step)
SELECT p.manifest_id, p.sink, p.settled, %(only_evidence)s, %(lost_values)s, %(what)s, %(next_step)s
FROM publication p WHERE p.manifest_id = ANY (%(manifests)s) AND p.sink = %(sink)s
ON CONFLICT (manifest_id, sink) DO UPDATE
SET settled = excluded.settled, what = excluded.what, next_step = excluded.next_step,
    only_evidence = excluded.only_evidence AND (missing_output.only_evidence OR missing_output.settled <> excluded.settled),
    lost_values = excluded.lost_values OR (missing_output.lost_values AND missing_output.settled = excluded.settled),
    found_at = CASE missing_output.settled WHEN excluded.settled THEN missing_output.found_at ELSE now() END;

-- name: forget_missing_evidence
-- The evidence of all newer manifests was looked at, and only that of "missing" was not found.
DELETE FROM missing_output o USING manifest m
WHERE m.id = o.manifest_id AND m.pipeline = %(pipeline_name)s AND o.sink = %(sink)s AND o.only_evidence
  AND o.manifest_id > %(above)s AND NOT o.manifest_id = ANY (%(missing)s);

-- name: forget_missing
-- An audit has found all output, or it was given up.
DELETE FROM missing_output o USING manifest m
WHERE m.id = o.manifest_id AND m.pipeline = %(pipeline_name)s
  AND (%(manifest_id)s::bigint IS NULL OR m.id = %(manifest_id)s);

-- name: missing_outputs
SELECT o.manifest_id, o.sink, o.lost_values, o.found_at, o.what, o.next_step
FROM missing_output o
JOIN standing_publication p ON p.manifest_id = o.manifest_id AND p.sink = o.sink AND p.settled = o.settled
WHERE p.pipeline = %(pipeline_name)s ORDER BY o.manifest_id, o.sink;

-- name: target
SELECT identity, position, table_id, columns FROM target WHERE target = %(target)s;

-- name: other_writers
SELECT pipeline FROM sink
WHERE target = %(target)s AND pipeline <> %(pipeline_name)s AND retired_at IS NULL ORDER BY pipeline;

-- name: writers
-- Retired sinks count only if they have published something, because that stays.
SELECT pipeline, name, target FROM sink
WHERE target = ANY (%(targets)s) AND (retired_at IS NULL OR (%(retired)s AND EXISTS (
    SELECT FROM publication p JOIN manifest m ON m.id = p.manifest_id
    WHERE m.pipeline = sink.pipeline AND p.sink = sink.name)))
ORDER BY retired_at NULLS FIRST, pipeline, name;

-- name: targets
SELECT DISTINCT target FROM sink ORDER BY target;

-- name: remember_target
INSERT INTO target (target, identity, position, table_id, columns)
VALUES (%(target)s, %(identity)s, %(position)s, %(table_id)s, %(columns)s)
ON CONFLICT (target) DO UPDATE
SET position = greatest(target.position, EXCLUDED.position), table_id = coalesce(EXCLUDED.table_id, target.table_id),
    columns = coalesce(EXCLUDED.columns, target.columns)
WHERE target.identity = EXCLUDED.identity;

-- name: accept_target
INSERT INTO target (target, identity, position, table_id)
VALUES (%(target)s, %(identity)s, %(position)s, %(table_id)s)
ON CONFLICT (target) DO UPDATE
SET identity = EXCLUDED.identity, position = EXCLUDED.position, table_id = EXCLUDED.table_id, columns = NULL;

-- name: published_in_target
SELECT m.pipeline, p.sink, count(*) AS manifests
FROM sink s JOIN manifest m ON m.pipeline = s.pipeline JOIN publication p ON p.manifest_id = m.id AND p.sink = s.name
WHERE s.target = %(target)s AND s.retired_at IS NULL GROUP BY m.pipeline, p.sink ORDER BY m.pipeline, p.sink;

-- name: accept_damage
INSERT INTO accepted_damage (manifest_id, sink, attempt, path)
SELECT %(manifest_id)s, %(sink)s, %(attempt)s, path FROM unnest(%(paths)s::text[]) AS path ON CONFLICT DO NOTHING;

-- name: accept_expectations
INSERT INTO accepted_expectation (manifest_id, question)
SELECT %(manifest_id)s, question FROM unnest(%(questions)s::text[]) AS question ON CONFLICT DO NOTHING;

-- name: accepted_expectations
SELECT question FROM accepted_expectation WHERE manifest_id = %(manifest_id)s;

-- name: accepted_damage
SELECT path FROM accepted_damage
WHERE manifest_id = %(manifest_id)s AND sink = %(sink)s AND attempt = %(attempt)s;

-- name: behind
-- Done manifests that show a newer attempt in one sink than in another that the attempt should have written to. Every
-- run asks this, so manifests that were published only once are not read: an index has the others, and of those only
-- the uneven ones matter. They are looked up by id, because PostgreSQL overestimates their number.
WITH uneven AS MATERIALIZED (
    SELECT manifest_id FROM publication WHERE settled > 1 GROUP BY manifest_id
    HAVING count(DISTINCT settled) > 1 OR NOT array_agg(sink) @> %(sinks)s::text[])
SELECT DISTINCT p.manifest_id AS id
FROM standing_publication p
JOIN manifest m ON m.id = p.manifest_id AND m.pipeline = %(pipeline_name)s AND m.state = 'done'
JOIN standing_publication other ON other.manifest_id = p.manifest_id AND other.settled > p.settled
JOIN attempt a ON a.manifest_id = other.manifest_id AND a.attempt = other.settled AND p.sink = ANY (a.sinks)
WHERE p.manifest_id = ANY (ARRAY(SELECT manifest_id FROM uneven)) AND p.sink = ANY (%(sinks)s::text[])
  AND NOT EXISTS (SELECT FROM given_up g WHERE g.manifest_id = p.manifest_id AND g.sink = p.sink)
ORDER BY 1;

-- name: unknown_manifests
SELECT staged.id FROM unnest(%(manifests)s::bigint[]) AS staged (id)
WHERE NOT EXISTS (SELECT FROM manifest m WHERE m.id = staged.id) ORDER BY staged.id;

-- name: attempts
SELECT attempt, state::text AS state, actor, error, note, started_at, ended_at,
       coalesce(jsonb_array_length(receipt -> 'objects'), 0) AS objects
FROM attempt WHERE manifest_id = %(manifest_id)s ORDER BY attempt;

-- name: revisions
-- How often the output of a manifest that readers see has changed: the first publication, and each attempt that
-- replaced it in some sink. In the history, an entry of a changed publication has the attempt only if that changed, and
-- no sink; an entry of a new publication has both.
SELECT m.id AS manifest_id, 1 + count(DISTINCT e.what ->> 'attempt') AS revision
FROM unnest(%(ids)s::bigint[]) AS m (id)
LEFT JOIN event e ON e.manifest_id = m.id AND e.subject = 'publication' AND e.what ? 'attempt' AND NOT e.what ? 'sink'
GROUP BY m.id;

-- name: events
SELECT at, actor, subject, what FROM (
    SELECT * FROM event WHERE manifest_id = %(manifest_id)s
    UNION ALL
    SELECT e.* FROM event e
    JOIN manifest m ON m.id = %(manifest_id)s
    WHERE e.subject = 'decision' AND e.what -> 'manifests' @> to_jsonb(m.id)
      AND e.what ->> 'pipeline' IN (
          SELECT m.pipeline UNION ALL SELECT name FROM former_name WHERE pipeline = m.pipeline)) found
ORDER BY id;

-- name: note_decision
INSERT INTO event (actor, subject, what)
VALUES (current_setting('tidemark.actor'), 'decision', jsonb_build_object(
    'pipeline', %(pipeline_name)s::text, 'decision', %(verb)s::text, 'why', current_setting('tidemark.why'),
    'lines', %(lines)s::jsonb, 'manifests', %(manifests)s::jsonb));

-- name: decisions
SELECT at, actor, what ->> 'decision' AS decision, what ->> 'why' AS why, what -> 'lines' AS lines,
       what -> 'manifests' AS manifests
FROM event WHERE subject = 'decision' AND what ->> 'pipeline' IN (
    SELECT %(pipeline_name)s::text UNION ALL SELECT name FROM former_name WHERE pipeline = %(pipeline_name)s)
ORDER BY id;

-- name: highest_manifest
SELECT coalesce(max(id), 0) AS id FROM manifest WHERE %(pipeline_name)s::text IS NULL OR pipeline = %(pipeline_name)s;

-- name: published_notes
SELECT DISTINCT a.manifest_id, a.attempt, a.note
FROM attempt a JOIN manifest m ON m.id = a.manifest_id
JOIN publication p ON p.manifest_id = a.manifest_id AND p.attempt = a.attempt
WHERE m.pipeline = %(pipeline_name)s AND a.note IS NOT NULL
ORDER BY a.manifest_id;

-- name: gone_rows
-- Missing rows that other rows refer to: they were deleted with triggers and foreign keys disabled. Looks at the newest
-- runs, and at the newest manifests with their ranges; NULL: at all. Manifests without a run are in no list.
WITH planned AS (
    SELECT manifests FROM run WHERE pipeline = %(pipeline_name)s
    ORDER BY planned_at DESC, id DESC LIMIT %(newest)s::bigint),
known AS (
    SELECT * FROM manifest WHERE pipeline = %(pipeline_name)s ORDER BY id DESC LIMIT %(newest)s::bigint),
part AS (
    SELECT c.topic, c.partition, r.* FROM manifest_range r JOIN chain c ON c.id = r.chain_id
    WHERE c.pipeline = %(pipeline_name)s
      AND (%(newest)s::bigint IS NULL OR r.manifest_id = ANY (ARRAY(SELECT id FROM known))))
SELECT 'manifest' AS gone_from, id AS manifest_id, NULL::bigint AS chain_id, NULL AS topic, NULL::int AS partition,
       NULL::bigint AS start_offset, NULL::bigint AS end_offset
FROM (SELECT manifest_id AS id FROM part
      WHERE manifest_id IS NOT NULL AND %(newest)s::bigint IS NULL   -- the newest parts are of known manifests
      UNION SELECT unnest(manifests) FROM planned) referred
WHERE NOT EXISTS (SELECT FROM manifest m WHERE m.id = referred.id)
UNION ALL
SELECT 'run', id, NULL, NULL, NULL, NULL, NULL FROM known k WHERE NOT EXISTS (SELECT FROM run r WHERE r.id = k.run_id)
UNION ALL
SELECT 'attempt', k.id, NULL, NULL, NULL, NULL, NULL FROM known k
WHERE EXISTS (SELECT FROM publication p WHERE p.manifest_id = k.id AND NOT EXISTS (
    SELECT FROM attempt a WHERE a.manifest_id = p.manifest_id AND a.attempt = p.attempt))
UNION ALL
SELECT 'publication', k.id, NULL, NULL, NULL, NULL, NULL FROM known k
WHERE k.state = 'done' AND NOT EXISTS (SELECT FROM publication p WHERE p.manifest_id = k.id)
  AND NOT EXISTS (SELECT FROM given_up g WHERE g.manifest_id = k.id)
UNION ALL
SELECT 'manifest_range', k.id, NULL, NULL, NULL, NULL, NULL FROM known k
WHERE (SELECT max((p.counts ->> 'read')::bigint) FROM publication p
       WHERE p.manifest_id = k.id AND p.sink = ANY (ARRAY(
           -- include: current_sinks
       )))
    > (SELECT coalesce(sum(r.end_offset - r.start_offset), 0) FROM manifest_range r WHERE r.manifest_id = k.id)
UNION ALL
SELECT 'manifest_range', NULL, chain_id, topic, partition, (
           SELECT max(b.end_offset) FROM manifest_range b
           WHERE b.chain_id = part.chain_id AND b.end_offset < part.start_offset), start_offset
FROM part WHERE kind <> 'anchor'
  AND NOT EXISTS (SELECT FROM manifest_range b WHERE b.chain_id = part.chain_id AND b.end_offset = part.start_offset)
ORDER BY gone_from, manifest_id, topic, partition, start_offset;

-- name: ranges_of_adopted
-- Also the ranges of manifests whose own row was deleted.
SELECT g.manifest_id, jsonb_build_object(
           'at', jsonb_build_object('topic', c.topic, 'topic_id', c.topic_id, 'partition', c.partition),
           'start', g.start_offset, 'end', g.end_offset, 'incarnation', c.generation, 'anchor', 0) AS covered
FROM manifest_range g JOIN chain c ON c.id = g.chain_id
WHERE g.manifest_id = ANY (%(ids)s) AND c.pipeline = %(pipeline_name)s
ORDER BY g.manifest_id, c.topic, c.partition, g.start_offset;

-- name: succeed
-- Notes that this database takes over the targets of another one. Manifests of its own would have the same ids as the
-- other's, so it must have none yet, or must have taken over from that database before.
UPDATE database SET successor_of = CASE WHEN %(id)s::uuid = ANY (successor_of) THEN successor_of
                                        ELSE successor_of || %(id)s::uuid END
WHERE %(id)s::uuid = ANY (successor_of)
   OR NOT EXISTS (SELECT FROM manifest) RETURNING id;

-- name: adopt_manifest
-- Numbers of attempts whose rows exist are not used again.
INSERT INTO manifest (id, run_id, pipeline, slice, attempt, reason) OVERRIDING SYSTEM VALUE
SELECT %(manifest_id)s, %(run_id)s, %(pipeline_name)s, %(slice)s, greatest(max(attempt), %(staged)s), 'its row was deleted'
FROM attempt WHERE manifest_id = %(manifest_id)s
ON CONFLICT (id) DO UPDATE SET run_id = EXCLUDED.run_id;  -- its run was deleted

-- name: adopt_attempt
INSERT INTO attempt (manifest_id, attempt, state, fingerprint, actor, receipt, ended_at)
VALUES (%(manifest_id)s, %(attempt)s, 'published', 'adopted', %(actor)s, %(receipt)s, now())
ON CONFLICT (manifest_id, attempt) DO UPDATE
SET receipt = EXCLUDED.receipt, taken_back = '{}', state = 'published', ended_at = now();

-- name: adopt_number
UPDATE manifest
SET attempt = greatest(attempt, %(attempt)s), state = CASE state WHEN 'done' THEN state ELSE 'running' END, reason = NULL
WHERE id = %(manifest_id)s;

-- name: skip_attempts
UPDATE manifest SET attempt = greatest(attempt, %(attempt)s),
    reason = coalesce(reason, CASE state WHEN 'planned' THEN 'attempts that the restored database does not know' END)
WHERE id = %(manifest_id)s;

-- name: adopt_chains
INSERT INTO chain (pipeline, topic, topic_id, partition, generation)
SELECT %(pipeline_name)s, * FROM unnest(
    %(topics)s::text[], %(topic_ids)s::text[], %(partitions)s::int[], %(generations)s::int[])
RETURNING id, topic, topic_id, partition, generation;

-- name: retire_earlier_generations
UPDATE chain SET retired_at = now(), blocked = NULL, blocked_since = NULL, blocked_end = NULL
WHERE pipeline = %(pipeline_name)s AND retired_at IS NULL AND EXISTS (
    SELECT FROM chain newer WHERE newer.pipeline = chain.pipeline AND newer.topic = chain.topic
    AND newer.partition = chain.partition AND newer.generation > chain.generation);

-- name: keep_manifest_ids_above
-- Never lowers the sequence: a plan that has not committed may use higher ids.
SELECT setval('manifest_id_seq', %(id)s) FROM manifest_id_seq WHERE NOT is_called OR last_value < %(id)s;
