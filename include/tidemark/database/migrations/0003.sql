-- Plans and closings of a pipeline that failed, one after the other: until one succeeds, no run reads anything new, or no
-- hour becomes complete.

CREATE TABLE failed_task (
    pipeline  text NOT NULL,          -- no reference: also one that no plan has ever succeeded of
    task      text NOT NULL CHECK (task IN ('plan', 'close')),
    since     timestamptz NOT NULL DEFAULT now(),
    at        timestamptz NOT NULL DEFAULT now(),
    times     bigint NOT NULL DEFAULT 1,
    actor     text NOT NULL,
    what      text NOT NULL,
    next_step text NOT NULL,
    refused   boolean NOT NULL,       -- a person's decision answers it
    run_key   text NOT NULL,          -- of the newest plan that began; empty for a closing
    PRIMARY KEY (pipeline, task)
);

-- A pipeline that gets another name leaves its old one.
CREATE FUNCTION forget_failed_tasks() RETURNS trigger LANGUAGE plpgsql SET search_path = tidemark AS $$
BEGIN
    DELETE FROM failed_task WHERE pipeline = OLD.name;
    RETURN NULL;
END $$;
CREATE TRIGGER forget_failed_tasks AFTER DELETE ON pipeline FOR EACH ROW EXECUTE FUNCTION forget_failed_tasks();

-- Sinks that show an older attempt than another one does: the hours of its rows name its manifest too. The next run that
-- closes these hours, and those of which a sink lacks a manifest or a person has given up output, shows in each sink what
-- it has.
INSERT INTO manifest_hour (manifest_id, pipeline, hour, rows, late)
SELECT DISTINCT p.manifest_id, p.pipeline, (key || ':00Z')::timestamptz, 0, 0
FROM standing_publication p
JOIN attempt a ON a.manifest_id = p.manifest_id AND a.attempt = p.attempt
CROSS JOIN LATERAL jsonb_object_keys(a.receipt -> 'hours') AS key
WHERE EXISTS (SELECT FROM standing_publication other
              WHERE other.manifest_id = p.manifest_id AND other.attempt > p.attempt)
ON CONFLICT DO NOTHING;

UPDATE hour h SET complete_at = NULL
FROM manifest_hour c
WHERE c.pipeline = h.pipeline AND c.hour = h.hour AND h.complete_at IS NOT NULL AND (
    c.manifest_id IN (SELECT manifest_id FROM accepted_damage)
    OR EXISTS (
        SELECT FROM success_file s WHERE s.pipeline = c.pipeline AND s.hour = c.hour
          AND NOT EXISTS (SELECT FROM publication p WHERE p.manifest_id = c.manifest_id AND p.sink = s.sink))
    OR c.manifest_id IN (
        SELECT p.manifest_id FROM standing_publication p
        JOIN standing_publication other ON other.manifest_id = p.manifest_id AND other.attempt > p.attempt
        JOIN attempt own ON own.manifest_id = p.manifest_id AND own.attempt = p.attempt
        JOIN attempt newer ON newer.manifest_id = p.manifest_id AND newer.attempt = other.attempt
        WHERE own.receipt -> 'hours' IS DISTINCT FROM newer.receipt -> 'hours'));
