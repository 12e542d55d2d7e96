-- Done manifests, each with one range on every chain, as planning and publishing would have left them. Constraints and
-- triggers are off, since a million rows would take a minute otherwise; the inserted rows satisfy all of them.
SET session_replication_role = replica;

WITH new_run AS (
    INSERT INTO run (pipeline, run_key, kind, reached, manifests, covered_by, notes)
    SELECT 'bench', 'history', 'backfill', true, '{}', '{}', '{}' RETURNING id)
INSERT INTO manifest (run_id, pipeline, slice, state, attempt, done_at)
SELECT new_run.id, 'bench', number, 'done', 1, now()
FROM new_run, generate_series(0, current_setting('bench.manifests')::int - 1) AS number;

INSERT INTO manifest_range (chain_id, start_offset, end_offset, kind, manifest_id)
SELECT c.id, m.slice * size.of, (m.slice + 1) * size.of, 'data', m.id
FROM manifest m, chain c, (SELECT current_setting('bench.records')::bigint AS of) AS size
ORDER BY m.id, c.id;

-- Only the newest manifests, which planning reads, and those with dead letters have receipts.
INSERT INTO attempt (manifest_id, attempt, state, fingerprint, actor, ended_at, receipt)
SELECT m.id, 1, 'published', 'bench', 'bench', now(),
       CASE WHEN m.id > (SELECT max(id) - 20 FROM manifest) OR m.id % 100 = 1
       THEN jsonb_build_object('manifest_id', m.id, 'attempt', 1, 'sinks', '["files"]'::jsonb, 'objects', '[]'::jsonb,
           'hours', '{}'::jsonb, 'reasons', '[]'::jsonb, 'schemas', '{}'::jsonb, 'follows', '{}'::jsonb, 'partitions', (
           SELECT jsonb_agg(jsonb_build_object('topic', c.topic, 'partition', c.partition, 'read', 1000, 'bytes', 170000,
                                               'distinct', 1000, 'decoded', 1000, 'dead_lettered', 0,
                                               'filtered', 0, 'deduplicated', 0, 'exploded', 0, 'gaps', '[]'::jsonb, 'gap_count', 0,
                                               'first', m.slice * current_setting('bench.records')::bigint,
                                               'last', (m.slice + 1) * current_setting('bench.records')::bigint - 1,
                                               'last_timestamp_ms', 0, 'last_epoch', 0,
                                               'last_digest', current_setting('bench.digest')))
           FROM chain c)) END
FROM manifest m;

INSERT INTO publication (manifest_id, sink, attempt, settled, digest, counts)
SELECT id, 'files', 1, 1, repeat('0', 48), jsonb_build_object(
           'read', chain.number * size.of, 'invisible', 0, 'written', chain.number * size.of - letters.number,
           'dead_lettered', letters.number, 'filtered', 0, 'deduplicated', 0, 'exploded', 0, 'superseded', 0, 'stale', 0)
FROM manifest m
CROSS JOIN (SELECT count(*) AS number FROM chain) AS chain
CROSS JOIN (SELECT current_setting('bench.records')::bigint AS of) AS size
CROSS JOIN LATERAL (SELECT (m.id % 100 = 1)::int AS number) AS letters;   -- each hundredth has a dead letter

SET session_replication_role = DEFAULT;
