-- The log of a partition before and after its topic was made again, or it was cut, is called a log generation.

ALTER TABLE chain RENAME COLUMN incarnation TO generation;
ALTER TABLE chain RENAME CONSTRAINT chain_pipeline_topic_id_partition_incarnation_key
    TO chain_pipeline_topic_id_partition_generation_key;

-- Where the log generation of a chain ended: the log was truncated there (accepted by a person, or only noticed). The
-- offsets from there on hold the records of a later generation, or none. NULL while the generation goes on.
ALTER FUNCTION life_end(bigint) RENAME TO generation_end;
CREATE OR REPLACE FUNCTION generation_end(the_chain bigint) RETURNS bigint
LANGUAGE sql STABLE SET search_path = tidemark AS $$
    SELECT least(c.blocked_end, CASE WHEN c.retired_at IS NOT NULL THEN coalesce((
        SELECT min(least(a.end_offset, later.blocked_end)) FROM chain later
        JOIN manifest_range a ON a.chain_id = later.id AND a.kind = 'anchor'
        WHERE later.pipeline = c.pipeline AND later.topic_id = c.topic_id AND later.partition = c.partition
          AND later.generation > c.generation), 0) END)
    FROM chain c WHERE c.id = the_chain
$$;

ALTER VIEW outlived_range RENAME TO range_beyond_generation;
ALTER VIEW range_beyond_generation RENAME COLUMN life_end TO generation_end;
