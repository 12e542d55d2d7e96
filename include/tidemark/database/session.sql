-- The queries of a new session, and about a session that waits. Each statement names its parameters.

-- name: settings
SELECT set_config(name, value, false) FROM unnest(%(names)s::text[], %(values)s::text[]) AS setting (name, value)
WHERE current_setting(name, true) IS NOT NULL;

-- name: process
SELECT pg_backend_pid() AS process;

-- name: server
-- ``awaited``: the standby servers that each COMMIT of this session waits for.
SELECT pg_is_in_recovery() AS is_standby, current_setting('transaction_read_only')::boolean AS is_read_only,
    CASE WHEN current_setting('synchronous_commit') NOT IN ('off', 'local')
         THEN current_setting('synchronous_standby_names') ELSE '' END AS awaited;

-- name: standbys
-- Logical slots, such as Debezium's, are no standby servers. If the user may not see the state of the others, all of
-- them count as able to confirm a COMMIT. Planning this query takes a new session some milliseconds.
SELECT count(*) AS standbys, count(*) FILTER (WHERE coalesce(sync_state, 'sync') IN ('sync', 'quorum')) AS confirming
FROM pg_stat_replication r
WHERE pid IS NOT NULL
    AND NOT EXISTS (SELECT FROM pg_replication_slots s WHERE s.active_pid = r.pid AND s.slot_type = 'logical');

-- name: waits_for
SELECT wait_event_type || ': ' || wait_event AS event FROM pg_stat_activity WHERE pid = %(process)s AND state = 'active';
