#!/bin/bash
# As the real image: at the first start a server that answers on its socket alone makes the database.
set -eu
if [ "$(id -u)" = 0 ]; then
  chown -R postgres: /var/lib/postgresql
  exec setpriv --reuid postgres --regid postgres --clear-groups "$0"
fi
data=/var/lib/postgresql/18/docker
if [ ! -e "$data/PG_VERSION" ]; then
  mkdir -p "$data"
  initdb --pgdata "$data" --username postgres --pwfile <(printf %s "$POSTGRES_PASSWORD") \
    --auth-local trust --auth-host scram-sha-256 --encoding UTF8 --locale C.UTF-8
  echo 'host all all all scram-sha-256' >> "$data/pg_hba.conf"
  pg_ctl --pgdata "$data" --options '-c listen_addresses= -c unix_socket_directories=/tmp' --wait start
  createdb --host /tmp --username postgres "$POSTGRES_DB"
  pg_ctl --pgdata "$data" --mode fast --wait stop
fi
exec postgres -D "$data" -c 'listen_addresses=*' -c unix_socket_directories=/tmp
