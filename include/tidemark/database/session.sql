-- What a new session asks. Parameters: those that a statement names.

-- name: settings
SELECT set_config(name, value, false) FROM unnest(%(names)s::text[], %(values)s::text[]) AS setting (name, value);

-- name: process
SELECT pg_backend_pid() AS process;
