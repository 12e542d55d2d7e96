#!/bin/bash
# As the real image: wait for Airflow's database before any command, unless the number of tries is 0.
set -eu
for ((left = ${CONNECTION_CHECK_MAX_COUNT:-20}; left > 0; left--)); do
  airflow db check && break
  sleep 3
done
exec "$@"
