-- State and settings of the server. Parameters: none.

-- name: health
SELECT current_setting('server_version') AS server,
    to_regclass('tidemark.database') IS NOT NULL AS ours,
    to_regclass('public.dag_run') IS NOT NULL AS airflow,
    current_setting('fsync') AS fsync,
    current_setting('full_page_writes') AS full_page_writes,
    current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('synchronous_standby_names') AS synchronous_standby_names,
    extract(epoch FROM clock_timestamp())::float8 AS now;
