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
    PRIMARY KEY (pipeline, task)
);

-- A pipeline that gets another name leaves its old one.
CREATE FUNCTION forget_failed_tasks() RETURNS trigger LANGUAGE plpgsql SET search_path = tidemark AS $$
BEGIN
    DELETE FROM failed_task WHERE pipeline = OLD.name;
    RETURN NULL;
END $$;
CREATE TRIGGER forget_failed_tasks AFTER DELETE ON pipeline FOR EACH ROW EXECUTE FUNCTION forget_failed_tasks();
