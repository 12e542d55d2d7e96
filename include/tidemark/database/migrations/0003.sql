-- The newest plans of a pipeline that failed, one after the other: until one succeeds, no run reads anything new.

CREATE TABLE failed_plan (
    pipeline  text PRIMARY KEY,       -- no reference: also one that no plan has ever succeeded of
    since     timestamptz NOT NULL DEFAULT now(),
    at        timestamptz NOT NULL DEFAULT now(),
    plans     bigint NOT NULL DEFAULT 1,
    actor     text NOT NULL,
    what      text NOT NULL,
    next_step text NOT NULL
);

-- A pipeline that gets another name leaves its old one.
CREATE FUNCTION forget_failed_plan() RETURNS trigger LANGUAGE plpgsql SET search_path = tidemark AS $$
BEGIN
    DELETE FROM failed_plan WHERE pipeline = OLD.name;
    RETURN NULL;
END $$;
CREATE TRIGGER forget_failed_plan AFTER DELETE ON pipeline FOR EACH ROW EXECUTE FUNCTION forget_failed_plan();
