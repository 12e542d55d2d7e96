#!/bin/bash
# As the real image: KAFKA_LOG_DIRS=.. is the property log.dirs=.., and the storage is formatted at the first start.
set -eu
properties=/opt/kafka/config/server.properties
env | sed -n 's/^KAFKA_//p' | while IFS='=' read -r name value; do
  echo "$(tr '[:upper:]_' '[:lower:].' <<< "$name")=$value"
done > "$properties"
java=(java -Xmx512m -XX:+UseSerialGC -cp '/opt/kafka/libs/*')
"${java[@]}" kafka.tools.StorageTool format --ignore-formatted --cluster-id 5L6g3nShT-eMCtK--X86sw --config "$properties"
exec "${java[@]}" kafka.Kafka "$properties"
