-- DuckDB's SQL. Rows have a key, a version, and their place: file and position. The key is one value, even if it has
-- several columns. A row without an offset was added by others: any version is newer. A null order_by, which rows have
-- that are older than the column, is lower than any value.

-- name: version_descending
"offset" IS NULL, order_by DESC NULLS LAST, log_generation DESC NULLS LAST, topic DESC NULLS LAST,
topic_partition DESC NULLS LAST, "offset" DESC NULLS LAST, attempt DESC NULLS LAST

-- name: stage
CREATE TABLE staged AS SELECT * FROM incoming;

-- name: choose_newest
CREATE TABLE newest AS SELECT * FROM staged
QUALIFY row_number() OVER (PARTITION BY key ORDER BY
    -- include: version_descending
    , file, position) = 1;

-- name: touch
CREATE TABLE touched AS SELECT incoming.* FROM incoming SEMI JOIN newest ON incoming.key = newest.key;

-- name: touched_places
SELECT file, position FROM touched;

-- name: drop_deleted
DELETE FROM touched USING incoming WHERE touched.file = incoming.file AND touched.position = incoming.position;

-- name: merge
-- Of two rows of one record, the higher attempt's was made by newer code. It wins, even if that code gives it a lower
-- order_by than another record of its key has.
CREATE TABLE winners AS
WITH made_again AS (
    SELECT touched.file, touched.position FROM touched JOIN staged
    ON touched.key = staged.key AND touched.log_generation = staged.log_generation AND touched.topic = staged.topic
       AND touched.topic_partition = staged.topic_partition AND touched."offset" = staged."offset"
       AND touched.attempt < staged.attempt
), rivals AS (
    SELECT *, true AS is_new FROM newest
    UNION ALL
    SELECT *, false AS is_new FROM touched ANTI JOIN made_again USING (file, position)
), of_records AS (
    SELECT * FROM rivals
    QUALIFY row_number() OVER (
        PARTITION BY key, log_generation, topic, topic_partition, "offset"
        ORDER BY attempt DESC NULLS LAST, is_new, order_by DESC NULLS LAST, file, position) = 1
)
SELECT is_new, file, position FROM of_records
QUALIFY row_number() OVER (PARTITION BY key ORDER BY
    -- include: version_descending
    , is_new, file, position) = 1;

-- name: counts
SELECT (SELECT count(*) FROM staged) AS staged, (SELECT count(*) FROM newest) AS newest,
       (SELECT count(*) FROM winners WHERE is_new) AS merged;

-- name: kept
SELECT file, position FROM winners WHERE is_new ORDER BY file, position;

-- name: dropped
SELECT file, position FROM staged ANTI JOIN (SELECT file, position FROM winners WHERE is_new) USING (file, position)
ORDER BY file, position;

-- name: replaced
SELECT file, position FROM touched ANTI JOIN (SELECT file, position FROM winners WHERE NOT is_new)
    USING (file, position)
ORDER BY file, position;

-- name: count_lacking
-- Staged keys for which the table has no row of the same or a newer version; attempts are not compared.
WITH rivals AS (
    SELECT key, order_by, log_generation, topic, topic_partition, "offset", 0 AS attempt, true AS is_new FROM newest
    UNION ALL
    SELECT key, order_by, log_generation, topic, topic_partition, "offset", attempt, false FROM touched
)
SELECT count(*) FILTER (is_new) AS lacking FROM (
    SELECT is_new FROM rivals QUALIFY row_number() OVER (PARTITION BY key ORDER BY
        -- include: version_descending
        , is_new) = 1);

-- name: hold
CREATE TABLE held AS SELECT * FROM incoming;

-- name: origins
SELECT manifest, topic, topic_partition AS partition, min("offset") AS first, max("offset") AS last, count(*) AS rows,
       coalesce(attempt, 0) AS attempt
FROM held WHERE manifest IS NOT NULL GROUP BY manifest, topic, topic_partition, attempt ORDER BY ALL;

-- name: count_held
SELECT count(*) AS rows, count(DISTINCT key) AS keys FROM held;
