#!/bin/bash
# As the real image, whose entry point is java, for `-jar DynamoDBLocal.jar OPTIONS`.
set -eu
[ "$1 $2" = '-jar DynamoDBLocal.jar' ]
shift 2
server=com.amazonaws.services.dynamodbv2.local.main.ServerRunner
exec java -Xmx256m -Dsqlite4java.library.path=native -cp 'libs/*' "$server" "$@"
