-- DuckDB's SQL. "keys" has the rows of a batch: the hash (a, b) of the key, ordinal, and stamp, which is a time or an
-- offset. "seen" has the newest stamp of each key.

-- name: create
CREATE TABLE seen (a UBIGINT, b UBIGINT, stamp BIGINT);

-- name: remember
INSERT INTO seen SELECT a, b, max(stamp) FROM keys GROUP BY a, b;

-- name: first
SELECT min(ordinal) AS ordinal FROM keys
WHERE NOT EXISTS (SELECT 1 FROM seen WHERE seen.a = keys.a AND seen.b = keys.b)
GROUP BY a, b;

-- name: within
-- A stamp is the time of a row. A row stays if its key has not come within this time before it.
SELECT ordinal FROM (
    SELECT ordinal, stamp, greatest(before, max(stamp) OVER (
        PARTITION BY a, b ORDER BY ordinal ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) AS last
    FROM keys LEFT JOIN (
        SELECT a, b, max(stamp) AS before FROM seen SEMI JOIN keys USING (a, b) GROUP BY a, b) USING (a, b))
WHERE last IS NULL OR last < stamp - $within::BIGINT;

-- name: last
-- A stamp is the offset of a row; all rows of the partition were remembered before.
SELECT max(ordinal) AS ordinal FROM keys JOIN (
    SELECT a, b, max(stamp) AS last FROM seen SEMI JOIN keys USING (a, b) GROUP BY a, b) USING (a, b)
WHERE stamp = last GROUP BY a, b;
