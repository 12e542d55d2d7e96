"""Every problem of a pipeline file: the whole line that its writer sees."""
# ruff: noqa: E501 - the lines are kept whole, as they are printed

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.pipeline_text import changed, problems
from tidemark.errors import ConfigurationError
from tidemark.kinds import DECODERS, SINKS
from tidemark.pipeline.loader import load_each

Write = Callable[..., Path]

# fmt: off
PROBLEMS: list[tuple[str, str, str, str]] = [
    ("a typo in a key", "    topics:", "    cutt: latest\n    topics:",
     '5: source.kafka.cutt: unknown key; did you mean "cut"? allowed: bootstrap_servers, connection, cut, gaps, on_data_loss, options, progress_group, slice, starting_offsets, topics, topics_regex'),
    ("a typo at the top", "pipeline: flights", "pipeline: flights\nshedule: '@daily'",
     '2: shedule: unknown key; did you mean "schedule"? allowed: airflow, catchup, code, decode, description, event_time, expect, hours_window, max_active_runs, max_age, max_dead_letters, on_error, pipeline, retries, retry_delay, schedule, sinks, source, spark, start_date, transform, trigger, unfinished'),
    ("drivers on a cluster without a place for orders", "pipeline: flights", "pipeline: flights\nspark: {engine: cluster}",
     '2: spark.orders: is missing: a folder or store that the driver can reach too, such as s3://bucket/orders'),
    ("orders for another engine", "pipeline: flights", "pipeline: flights\nspark: {orders: s3://bucket/orders}",
     '2: spark.orders: is only for engine: cluster'),
    ("a limit of drivers for another engine", "pipeline: flights", "pipeline: flights\nspark: {parallel_drivers: 3}",
     '2: spark.parallel_drivers: is only for engine: cluster'),
    ("orders in an unknown store", "pipeline: flights", "pipeline: flights\nspark: {engine: cluster, orders: 'hdfs://orders'}",
     '2: spark.orders: must be a folder of this machine, or in a store: abfss://container@account.dfs.core.windows.net/prefix, s3://bucket/prefix; "hdfs://" is not known (it is "hdfs://orders")'),
    ("keys for a folder of orders", "pipeline: flights", "pipeline: flights\nspark: {engine: cluster, orders: orders, orders_connection: keys}",
     '2: spark.orders_connection: is only for orders in a store, not in a folder'),
    ("a command as a text", "pipeline: flights", "pipeline: flights\nspark: {engine: cluster, orders: orders, submit: ./job.sh}",
     '2: spark.submit: must be a list (it is "./job.sh")'),
    ("a secret for a driver", "pipeline: flights", "pipeline: flights\nspark: {conf: {spark.yarn.appMasterEnv.AIRFLOW_CONN_X: y}}",
     '2: spark.conf.spark.yarn.appMasterEnv.AIRFLOW_CONN_X: is not allowed: properties are seen in process lists; driver and executors look connections up in their own environment'),
    ("a trigger without a number", "pipeline: flights", "pipeline: flights\ntrigger: {at_least_every: 1h}",
     '2: trigger.lag: is missing: A run begins when so many offsets are not planned yet.'),
    ("a trigger that is a number", "pipeline: flights", "pipeline: flights\ntrigger: 100_000",
     '2: trigger: must be a mapping of keys to values (it is 100000)'),
    ("a trigger for nothing", "pipeline: flights", "pipeline: flights\ntrigger: {lag: 0}",
     '2: trigger.lag: must be at least 1 (it is 0)'),
    ("a trigger with a unit in its number", "pipeline: flights", "pipeline: flights\ntrigger: {lag: 100k}",
     '2: trigger.lag: must be a whole number, without quotes (it is "100k")'),
    ("a trigger without a unit of time", "pipeline: flights", "pipeline: flights\ntrigger: {lag: 100_000, at_least_every: 60}",
     '2: trigger.at_least_every: must be a duration with its unit, such as 90s, 15m, 1h, 2d or PT1H30M (it is 60)'),
    ("a trigger that looks too often", "pipeline: flights", "pipeline: flights\ntrigger: {lag: 100_000, at_most_every: 5s}",
     '2: trigger.at_most_every: must be at least 10s: the lag is asked that often (it is "5s")'),
    ("a trigger whose longest pause is shorter than its shortest", "pipeline: flights", "pipeline: flights\ntrigger: {lag: 100_000, at_most_every: 2h}",
     '2: trigger.at_least_every: must be at least as long as at_most_every (1h without a value)'),
    ("a trigger with a typo", "pipeline: flights", "pipeline: flights\ntrigger: {lagg: 100_000}",
     '2: trigger.lag: is missing: A run begins when so many offsets are not planned yet.\n2: trigger.lagg: unknown key; did you mean "lag"? allowed: at_least_every, at_most_every, lag'),
    ("a dedupe that would have to know the future", 'pipeline: flights', 'pipeline: flights\ntransform: [{dedupe: {keys: [id], keep: last, within: 10m}}]',
     '2: transform[0].dedupe: cannot have within with keep: last: the last row of a key may come in a later manifest'),
    ("a dedupe within no time", 'pipeline: flights', 'pipeline: flights\ntransform: [{dedupe: {keys: [id], within: 0s}}]',
     '2: transform[0].dedupe: must have a within longer than 0s'),
    ("a window of hours that no hour is complete in", 'pipeline: flights', "pipeline: flights\nhours_window: 12h",
     '2: hours_window: must be at least a day longer than event_time.allowed_lateness, or no hour of it is complete (it is "12h")'),
    ("a kind of transform that does not exist", "pipeline: flights", "pipeline: flights\ntransform: [{filtr: x > 1}]",
     '2: transform[0].filtr: unknown key; did you mean "filter"? allowed: dedupe, explode, filter, python, select, spark, sql'),
    ("a condition that names no column", "pipeline: flights", "pipeline: flights\ntransform: [{filter: ids > 1}]",
     '2: transform[0].filter: does not fit: there is no column ids; did you mean "id"? allowed: id, at, gate, late, _topic, _partition, _offset, _timestamp, _key, _is_deleted; name one of these columns'),
    ("a condition that is a number", "pipeline: flights", "pipeline: flights\ntransform: [{filter: 5}]",
     "2: transform[0].filter: must be a condition in SQL, such as amount > 0 (it is 5)"),
    ("an aggregate", "pipeline: flights", "pipeline: flights\ntransform: [{select: [id, max(gate) AS gate]}]",
     "2: transform[0].select: does not fit: max() works on several rows; each row must come from one record alone, because batches end anywhere; write SELECT .. FROM batch WHERE .., see configuration.md"),
    ("columns that are gone when the event time is looked for", "pipeline: flights", "pipeline: flights\ntransform: [{select: [id]}]",
     '13: event_time.field: is not in the schema; allowed: id'),
    ("a key to dedupe by that a transform took away", "pipeline: flights",
     'pipeline: flights\ntransform:\n- select: [id, "\\"at\\""]\n- dedupe: {keys: [gate]}',
     '4: transform[1].dedupe: does not fit: there is no column gate; did you mean "at"? allowed: id, at; name one of these columns'),
    ("a function without a folder of code", "pipeline: flights", "pipeline: flights\ntransform: [{python: 'prices:tax'}]",
     "2: transform[0].python: does not fit: the code folder has no module prices; there is no such folder, or it has no .py file"),
    ("a typo in a sink", "      root: lake", "      rooot: lake",
     '14: sinks[0].files.root: is missing: The lake: a folder, below TIDEMARK_HOME when it is relative, or s3://bucket/prefix, or a container of Azure, of one database.\n15: sinks[0].files.rooot: unknown key; did you mean "root"? allowed: compression, connection, format, layout, max_file_bytes, max_file_rows, max_objects, name, root, s3, shared_with, sort_by, success_files'),
    ("success files in folders that others write into", "      root: lake", "      root: lake\n      success_files: true\n      shared_with: [others]",
     "16: sinks[0].files.success_files: says when an hour is complete, and in a folder that others write into (shared_with) no pipeline knows that; write success_files: false, or leave shared_with out and give the sink a root or layout of its own"),
    ("a share of dead letters without its sign", "pipeline: flights", "pipeline: flights\nmax_dead_letters: '0.1'",
     '2: max_dead_letters: must be a number of records, 0 or more, or a share of them with a percent sign, such as 0.1% or 5% (it is "0.1")'),
    ("a column to sort by that does not exist", "      root: lake", "      root: lake\n      sort_by: [gates]",
     '14: sinks[0]: has no column gates to sort by; did you mean "gate"? allowed: id, at, gate, late, _topic, _partition, _offset, _timestamp, _key'),
    ("slices at once for a sink that keeps their order", "sinks:", "spark: {parallel_slices: 2}\nsinks:\n  - topic: {bootstrap_servers: 'b:1', topic: out}",
     '15: sinks[0]: keeps the order of records, so slices are put there one after the other: leave out spark.parallel_slices, or give this sink a pipeline of its own'),
    ("no slices at once", "sinks:", "spark: {parallel_slices: 0}\nsinks:",
     '13: spark.parallel_slices: must be at least 1 (it is 0)'),
    ("a span of no time", "max_records: 1000", "max_span: 5s",
     '7: source.kafka.slice.max_span: must be at least 60s (it is "5s")'),
    ("a kind of sink that does not exist", "  - files:", "  - filess:",
     '14: sinks[0].filess: unknown key; did you mean "files"? allowed: delta, files, iceberg, postgres, topic, totals'),
    ("a kind of a former release", "  - files:\n      root: lake\n", "  - dynamodb:\n      table: totals\n      aggregate: {}\n",
     "14: sinks[0].dynamodb: is not allowed: DynamoDB has a copy of totals now, and PostgreSQL adds up; write a sink totals with connection, table and aggregate, and below it served_in: {dynamodb: {table: ..}}; see docs/configuration.md"),
    ("a word that is not allowed", "    topics:", "    gaps: compact\n    topics:",
     '5: source.kafka.gaps: "compact" is not allowed; did you mean "compacted"? allowed: none, transactions, compacted'),
    ("a decoder that does not exist", "format: json", "format: jsn",
     '9: decode.format: "jsn" is not allowed; did you mean "json"? allowed: ' + ", ".join(DECODERS)),
    ("no decoder", "  format: json\n", "",
     "8: decode.format: is missing: the format of the records; allowed: " + ", ".join(DECODERS)),
    ("an unknown key beside the decoder", "format: json", "format: json\n  shema: x",
     '10: decode.shema: unknown key; did you mean "schema"? allowed: envelope, format, headers, key, max_list_bytes, schema, tombstones, unknown_fields'),
    ("an option that would move the range", "    topics:", "    options: {startingTimestamp: 5}\n    topics:",
     "5: source.kafka.options.startingTimestamp: is not allowed: the manifest says where a range starts; see source.kafka.starting_offsets"),
    ("a Spark property that Tidemark sets", "pipeline: flights", "pipeline: flights\nspark: {conf: {spark.jars.packages: x}}",
     "2: spark.conf.spark.jars.packages: is not allowed: Tidemark brings its own jars"),
    ("a connection among the Spark properties", "pipeline: flights",
     "pipeline: flights\nspark: {conf: {spark.executorEnv.AIRFLOW_CONN_WAREHOUSE: x}}",
     "2: spark.conf.spark.executorEnv.AIRFLOW_CONN_WAREHOUSE: is not allowed: properties are seen in process lists; driver and executors look connections up in their own environment"),
    ("both addresses", "    topics:", "    bootstrap_servers: broker:9092\n    topics:",
     "5: source.kafka.bootstrap_servers: is set beside connection: only one of them may say where Kafka is"),
    ("no address", "    connection: kafka_default\n", "",
     "3: source.kafka.bootstrap_servers: is missing, and so is connection: one of them must say where Kafka is"),
    ("an address without a port", "connection: kafka_default", "bootstrap_servers: broker",
     '4: source.kafka.bootstrap_servers: must be host:port, or several separated by commas, such as broker-1:9092,broker-2:9092 (it is "broker")'),
    ("no topics", "[flights]", "[]",
     "3: source.kafka.topics_regex: is missing, and so is topics: one of them, or both, must say which topics are read"),
    ("no topics at all", "    topics: [flights]\n", "",
     "3: source.kafka.topics_regex: is missing, and so is topics: one of them, or both, must say which topics are read"),
    ("a pattern that is none", "topics: [flights]", "topics_regex: '['",
     "5: source.kafka.topics_regex: is not a regular expression: unterminated character set at position 0"),
    ("one topic as text", "[flights]", "flights",
     '5: source.kafka.topics: must be a list (it is "flights")'),
    ("a topic twice", "[flights]", "[flights, flights]",
     "5: source.kafka.topics: must name each topic once, has twice: flights"),
    ("a number for a topic", "[flights]", "[flights, 7]",
     "5: source.kafka.topics[1]: must be text, in quotes where it could be taken for a number (it is 7)"),
    ("a slice of nothing", "max_records: 1000", "max_records: 0",
     "7: source.kafka.slice.max_records: must be at least 1 (it is 0)"),
    ("too many slices", "max_records: 1000", "max_slices: 1001",
     "7: source.kafka.slice.max_slices: must be at most 1,000 (it is 1001)"),
    ("a size in an unknown unit", "max_records: 1000", "max_bytes: 1 gig",
     '7: source.kafka.slice.max_bytes: must be a number of bytes, or one with a unit: kB, MB, GB, KiB, MiB or GiB, such as 512MiB (it is "1 gig")'),
    ("a starting point without a zone", "    topics:", "    starting_offsets: 2024-01-31T00:00:00\n    topics:",
     '5: source.kafka.starting_offsets: must be earliest, latest, a time such as 2024-01-31T00:00:00Z, {group: NAME} or {offsets: {TOPIC: {PARTITION: OFFSET}}}; its zone is missing, add Z or an offset such as +01:00 (it is "2024-01-31T00:00:00")'),
    ("a typo in a starting point", "    topics:", "    starting_offsets: earlist\n    topics:",
     '5: source.kafka.starting_offsets: must be earliest, latest, a time such as 2024-01-31T00:00:00Z, {group: NAME} or {offsets: {TOPIC: {PARTITION: OFFSET}}}; did you mean "earliest"? (it is "earlist")'),
    ("a typo in the key of a starting point", "    topics:", "    starting_offsets: {groop: connect-flights}\n    topics:",
     '5: source.kafka.starting_offsets.groop: unknown key; did you mean "group"? allowed: group, offsets'),
    ("two starting points", "    topics:", "    starting_offsets: {group: a, offsets: {flights: {0: 1}}}\n    topics:",
     "5: source.kafka.starting_offsets: must hold one key: group or offsets"),
    ("a starting point that is nothing", "    topics:", "    starting_offsets: {}\n    topics:",
     "5: source.kafka.starting_offsets: must hold one key: group or offsets"),
    ("a list of starting points", "    topics:", "    starting_offsets: [earliest]\n    topics:",
     "5: source.kafka.starting_offsets: must be earliest, latest, a time such as 2024-01-31T00:00:00Z, {group: NAME} or {offsets: {TOPIC: {PARTITION: OFFSET}}}; did you mean \"earliest\"?"),
    ("a group without a name", "    topics:", '    starting_offsets: {group: ""}\n    topics:',
     '5: source.kafka.starting_offsets.group: must be the name of a consumer group: 1 to 255 characters that can be printed (it is "")'),
    ("a number for a group", "    topics:", "    starting_offsets: {group: 7}\n    topics:",
     "5: source.kafka.starting_offsets.group: must be text, in quotes where it could be taken for a number (it is 7)"),
    ("a starting point of a topic that is not read", "    topics:", "    starting_offsets:\n      offsets:\n        flihgts: {0: 1}\n    topics:",
     '7: source.kafka.starting_offsets.offsets.flihgts: is not in source.kafka.topics; did you mean "flights"?'),
    ("a partition that is no number", "    topics:", "    starting_offsets: {offsets: {flights: {00: 1}}}\n    topics:",
     '5: source.kafka.starting_offsets.offsets.flights.00: must be the number of a partition, such as 0 (it is "00")'),
    ("an offset as text", "    topics:", '    starting_offsets: {offsets: {flights: {0: "12"}}}\n    topics:',
     '5: source.kafka.starting_offsets.offsets.flights.0: must be a whole number, without quotes (it is "12")'),
    ("an offset below zero", "    topics:", "    starting_offsets: {offsets: {flights: {0: -2}}}\n    topics:",
     "5: source.kafka.starting_offsets.offsets.flights.0: must be at least 0 (it is -2)"),
    ("offsets without partitions", "    topics:", "    starting_offsets: {offsets: {flights: 12}}\n    topics:",
     "5: source.kafka.starting_offsets.offsets.flights: must be a mapping of keys to values (it is 12)"),
    ("an event time that is no field", "  field: at", "  field: att",
     '12: event_time.field: is not in the schema; did you mean "at"? allowed: id, at, gate, late'),
    ("an event time that can hold no time", "  field: at", "  field: late",
     "12: event_time.field: is bool in the schema; a time is a date-time, a date, text or a whole number"),
    ("two event times", "  field: at", "  field: at\n  from: source_timestamp",
     "13: event_time.from: is set beside field: only one of them may say where the time is"),
    ("a field and a header", "  field: at", "  field: at\n  header: at",
     "13: event_time.header: is set beside field: only one of them may say where the time is"),
    ("a path that leads nowhere", "  field: at", "  field: at.day",
     "12: event_time.field: is not in the schema; allowed: id, at, gate, late"),
    ("a pattern that has no day", "  field: at", '  field: gate\n  pattern: "%Y-%m"',
     '13: event_time.pattern: must have year, month and day, such as %Y-%m-%d (it is "%Y-%m")'),
    ("a pattern for what is no text", "  field: at", '  field: at\n  pattern: "%Y-%m-%d"',
     "13: event_time.pattern: is for text, and at is timestamp[us, tz=UTC] in the schema"),
    ("a pattern beside a unit", "  field: at", '  field: gate\n  unit: s\n  pattern: "%Y-%m-%d"',
     "14: event_time.pattern: is set beside unit: a text is a pattern or a whole number"),
    ("a least time without a zone", "  field: at", "  field: at\n  min: 2024-01-31T00:00:00",
     "13: event_time.min: must be a time such as 2024-01-31T00:00:00Z; its zone is missing, add Z or an offset such as +01:00 (it is \"2024-01-31T00:00:00\")"),
    ("a zone that does not exist", "  field: at", "  field: at\n  timezone: Europe/Berlinn",
     '13: event_time.timezone: must be an IANA zone such as UTC or Europe/Berlin; did you mean "Europe/Berlin"? (it is "Europe/Berlinn")'),
    ("a duration without a unit", "  field: at", "  field: at\n  allowed_lateness: 90",
     "13: event_time.allowed_lateness: must be a duration with its unit, such as 90s, 15m, 1h, 2d or PT1H30M (it is 90)"),
    ("a schedule that is never due", "pipeline: flights", "pipeline: flights\nschedule: 0 0 31 2 *",
     "2: schedule: is never due: none of its months has such a day"),
    ("a minute that does not exist", "pipeline: flights", "pipeline: flights\nschedule: 60 * * * *",
     '2: schedule: has a minute "60" that is not allowed: 0 to 59, *, a-b, a,b and */n are'),
    ("a preset that does not exist", "pipeline: flights", "pipeline: flights\nschedule: '@hourli'",
     '2: schedule: is not a preset; did you mean "@hourly"? allowed: @hourly, @daily, @weekly, @monthly, @quarterly, @yearly, or a cron expression'),
    ("a word for true", "pipeline: flights", "pipeline: flights\ncatchup: yes",
     '2: catchup: must be true or false, without quotes (it is "yes")'),
    ("a store that nobody knows", "root: lake", "root: gs://lake",
     '15: sinks[0].files.root: must be a folder of this machine, or in a store: abfss://container@account.dfs.core.windows.net/prefix, s3://bucket/prefix; "gs://" is Google\'s storage, which Tidemark cannot write to: use one of the others (it is "gs://lake")'),
    ("a store by Hadoop's name", "root: lake", "root: s3a://lake",
     '15: sinks[0].files.root: must be a folder of this machine, or in a store: abfss://container@account.dfs.core.windows.net/prefix, s3://bucket/prefix; "s3a://" is not known; write s3://bucket/prefix (it is "s3a://lake")'),
    ("a bucket that cannot be", "root: lake", "root: s3://My_Lake/raw",
     '15: sinks[0].files.root: must name a bucket: 3 to 63 lower-case letters, digits, dots and -, such as s3://bucket/prefix (it is "s3://My_Lake/raw")'),
    ("a prefix that cannot be", "root: lake", "root: s3://lake//raw",
     "15: sinks[0].files.root: must be s3://bucket/prefix with a prefix of letters, digits and ._=+!*'()-, no folder of it empty (it is \"s3://lake//raw\")"),
    ("a bucket's connection for a folder", "root: lake", "root: lake\n      connection: lake",
     "16: sinks[0].files.connection: is for a root such as s3://bucket/prefix; this one is a folder"),
    ("keys in an address", "root: lake", "root: s3://lake\n      s3: {endpoint_url: 'https://me:secret@minio:9000'}",
     "16: sinks[0].files.s3.endpoint_url: is not an address such as https://HOST:PORT, or holds user, password or query"),
    ("a key without its encryption", "root: lake", "root: s3://lake\n      s3: {kms_key_id: k}",
     "16: sinks[0].files.s3.kms_key_id: needs server_side_encryption: aws:kms"),
    ("a layout without the stream", "      root: lake", "      root: lake\n      layout: raw/%Y",
     '16: sinks[0].files.layout: must hold {stream}, so that two topics never share a folder (it is "raw/%Y")'),
    ("a layout from fine to coarse", "      root: lake", '      root: lake\n      layout: "{stream}/%Y/%d"',
     "16: sinks[0].files.layout: is not from coarse to fine: %d needs %m before it"),
    ("a minute in a layout", "      root: lake", '      root: lake\n      layout: "{stream}/%Y/%M"',
     '16: sinks[0].files.layout: has "%M" that is not allowed: %Y, %m, %d and %H are'),
    ("a layout that leaves the root", "      root: lake", '      root: lake\n      layout: "../{stream}"',
     '16: sinks[0].files.layout: must be folders with / between them, none empty, none . or .., no / at either end (it is "../{stream}")'),
    ("a folder that readers skip", "      root: lake", '      root: lake\n      layout: "_raw/{stream}"',
     '16: sinks[0].files.layout: has a folder "_raw" that readers skip: none may start with _ or a dot'),
    ("a sink that is nothing", "  - files:\n      root: lake\n", "  - {}\n",
     "14: sinks[0]: must hold one key, the kind of the sink, with its settings below; allowed: delta, files, iceberg, postgres, topic, totals"),
    ("a sink that is empty", "  - files:\n      root: lake\n", "  -\n",
     "14: sinks[0]: must hold one key, the kind of the sink, with its settings below; allowed: delta, files, iceberg, postgres, topic, totals"),
    ("a sink without settings", "  - files:\n      root: lake\n", "  - files\n",
     '14: sinks[0]: must hold one key, the kind of the sink, with its settings below; allowed: delta, files, iceberg, postgres, topic, totals (it is "files")'),
    ("a sink with a typo and nothing below", "  - files:\n      root: lake\n", "  - {fiels: {}}\n",
     '14: sinks[0].fiels: unknown key; did you mean "files"? allowed: delta, files, iceberg, postgres, topic, totals'),
    ("two sinks in one entry", "      root: lake\n", "      root: lake\n    postgres: {connection: w}\n",
     "16: sinks[0].postgres: is a second kind beside files: one sink is of one kind"),
    ("a sink and something unknown beside it", "      root: lake\n", "      root: lake\n    kafka: {topic: flights}\n",
     "16: sinks[0].kafka: unknown key; allowed: delta, files, iceberg, postgres, topic, totals"),
    ("a sink whose settings are not below it", "      root: lake\n", "    root: lake\n",
     "14: sinks[0].files: must be a mapping of keys to values (it is empty)\n15: sinks[0].root: unknown key; allowed: delta, files, iceberg, postgres, topic, totals"),
    ("sinks that are no list", "  - files:\n      root: lake\n", "  files: {root: lake}\n",
     "13: sinks: must be a list (it is a mapping)"),
    ("a kind of source that does not exist", "  kafka:\n", "  kafak:\n",
     '3: source.kafak: unknown key; did you mean "kafka"? allowed: kafka, rabbitmq'),
    ("a source and something unknown beside it", "      max_records: 1000\n", "      max_records: 1000\n  kafak: {}\n",
     '8: source.kafak: unknown key; did you mean "kafka"? allowed: kafka, rabbitmq'),
    ("a source that is nothing", "  kafka:\n    connection: kafka_default\n    topics: [flights]\n    slice:\n      max_records: 1000\n", "  {}\n",
     "2: source: must hold one key, the kind of the source, with its settings below; allowed: kafka, rabbitmq"),
    ("a source that is empty", "  kafka:\n    connection: kafka_default\n    topics: [flights]\n    slice:\n      max_records: 1000\n", "",
     "2: source: must hold one key, the kind of the source, with its settings below; allowed: kafka, rabbitmq"),
    ("a source without settings", "source:\n  kafka:\n    connection: kafka_default\n    topics: [flights]\n    slice:\n      max_records: 1000\n", "source: kafka\n",
     '2: source: must hold one key, the kind of the source, with its settings below; allowed: kafka, rabbitmq (it is "kafka")'),
    ("a kind of source with nothing below", "  kafka:\n    connection: kafka_default\n    topics: [flights]\n    slice:\n      max_records: 1000\n", "  kafka:\n",
     "3: source.kafka: must be a mapping of keys to values (it is empty)"),
    ("settings of a source without its kind", "  kafka:\n    connection: kafka_default\n    topics: [flights]\n    slice:\n      max_records: 1000\n", "  topics: [flights]\n",
     "3: source.topics: unknown key; allowed: kafka, rabbitmq"),
    ("no source", "source:\n  kafka:\n    connection: kafka_default\n    topics: [flights]\n    slice:\n      max_records: 1000\n", "",
     "1: source: is missing: Where the records come from."),
    ("no sinks", "  - files:\n      root: lake\n", "  []\n",
     "13: sinks: must have at least one entry"),
    ("a key that is not decoded", "  - files:\n      root: lake", "  - postgres: {connection: w, table: t, key: [idd]}",
     '14: sinks[0]: has no column idd for its key; did you mean "id"? allowed: id, at, gate, late'),
    ("a key that may be null", "  - files:\n      root: lake", "  - postgres: {connection: w, table: t, key: [gate]}",
     "14: sinks[0]: may not have gate in its key: it can be null; write NOT NULL in the schema, or list it under required"),
    ("offsets without their generation", "  - files:\n      root: lake",
     "  - postgres:\n      connection: w\n      table: t\n      key: [_topic, _partition, _offset]",
     ("17: sinks[0].postgres.key: may not have _offset without _log_generation: offsets of a topic that is created again "
     "begin at 0, and its rows would replace the older ones; write key: [_topic, _partition, _offset, _log_generation]")),
    ("offsets with the name that their generation had in release 0.2.0", "  - files:\n      root: lake",
     "  - postgres:\n      connection: w\n      table: t\n      key: [_topic, _partition, _offset, _incarnation]",
     ("17: sinks[0].postgres.key: may not have _offset without _log_generation: offsets of a topic that is created again "
     "begin at 0, and its rows would replace the older ones; write key: [_topic, _partition, _offset, _log_generation]")),
    ("an order that may be null", "  - files:\n      root: lake",
     "  - postgres: {connection: w, table: t, key: [id], order_by: at}",
     "14: sinks[0]: may not order by at: it can be null; write NOT NULL in the schema, or list it under required"),
    ("a tombstone's field that is of another part of the envelope", "format: json",
     "format: json\n  tombstones: [lsn]\n  envelope: {debezium: {columns: {lsn: source.lsn}}}",
     "10: decode.tombstones: names lsn, which is not in the schema"),
    ("a table that needs quotes", "  - files:\n      root: lake",
     '  - postgres: {connection: w, table: "My Table", key: [id]}',
     ('14: sinks[0].postgres.table: must be a table such as prices or sales.prices: lower-case letters, digits and _ '
     '(it is "My Table")')),
    ("headers beside a field of that name", "gate STRING, late BOOLEAN", "headers STRING\n  headers: true",
     "11: decode.headers: gives a second column headers: the value has a field of that name"),
    ("an envelope that does not exist", "format: json", "format: json\n  envelope: maxwell",
     '10: decode.envelope: must hold one key, the kind of the envelope, with its settings below; allowed: debezium (it is "maxwell")'),
    ("an envelope without tombstones", "format: json", "format: json\n  envelope: debezium",
     "8: decode.tombstones: is missing: with an envelope it names the fields that the key of a row has"),
    ("an envelope of another format",
     "format: json\n  schema: id BIGINT NOT NULL, at TIMESTAMP, gate STRING, late BOOLEAN",
     "format: string\n  envelope: debezium", "10: decode.envelope: needs format json, avro or protobuf"),
    ("a unit that does not exist", "format: json",
     "format: json\n  tombstones: [id]\n  envelope: {debezium: {times: {at: s}}}",
     '11: decode.envelope.debezium.times.at: "s" is not allowed; did you mean "us"? allowed: days, ms, us, ns'),
    ("a unit for a column without times", "format: json",
     "format: json\n  tombstones: [id]\n  envelope: {debezium: {times: {gate: us}}}",
     "11: decode.envelope: does not fit: decode.envelope.times names gate, which neither is nor contains a DATE or TIMESTAMP of the schema; correct its name, or its type in decode.schema"),
    ("a tombstone's field that is not decoded", "format: json", "format: json\n  tombstones: [ids]",
     '10: decode.tombstones: names ids, which is not in the schema; did you mean "id"?'),
    ("two sinks in one place", "      root: lake", "      root: lake\n  - files: {name: more, root: lake/more}",
     '16: sinks[1]: shares its target with the sink "files": give each a target of its own'),
    ("two sinks of one name", "      root: lake", "      root: lake\n  - files: {root: other}",
     '16: sinks[1]: is the second sink called "files": give it a name of its own'),
    ("a key twice", "    topics:", "    connection: other\n    topics:",
     "5: source.kafka.connection: is written twice, first on line 4; remove one"),
    ("an empty section", "    slice:\n      max_records: 1000\n", "    slice:\n",
     "6: source.kafka.slice: must be a mapping of keys to values (it is empty)"),
    ("a bad name", "pipeline: flights", "pipeline: Flights 2",
     '1: pipeline: must be 1 to 63 lower-case letters, digits, _ or -, and start with a letter (it is "Flights 2")'),
    ("a tag of a language", "pipeline: flights", "pipeline: !!python/name:os.system flights",
     "1: pipeline: has the tag tag:yaml.org,2002:python/name:os.system, which has no meaning here; remove it"),
]
WHOLE_FILES: list[tuple[str, str | bytes, str]] = [
    ("nothing", "",
     "p.yaml: is empty; begin with pipeline: NAME"),
    ("only comments", "# later\n",
     "p.yaml: is empty; begin with pipeline: NAME"),
    ("a list", "- pipeline: a\n",
     "p.yaml: must be a mapping, its top is a list; begin with pipeline: NAME"),
    ("a word", "pipeline\n",
     "p.yaml: must be a mapping, its top is text; begin with pipeline: NAME"),
    ("a tab", "pipeline: a\nsource:\n\tkafka:\n",
     "p.yaml:3: is indented with a tab; YAML indents with spaces only"),
    ("a picture", b'\x89PNG\r\n\x1a\n\x00',
     "p.yaml: is not UTF-8 text: byte 0x89 at position 0"),
    ("zeros", b'pipeline: a\n\x00\x00',
     "p.yaml:2: is not text: it holds the control character 0x00"),
    ("an open bracket", "pipeline: [a\n",
     "p.yaml:2: is not YAML: expected ',' or ']', but got '<stream end>'"),
    ("two documents", "a: 1\n---\nb: 1\n",
     "p.yaml:2: holds a second document; one file describes one pipeline"),
    ("a variable in a list without quotes", "topics: [${TOPIC}]\n",
     'p.yaml:1: is not YAML: expected \',\' or \']\', but got \'{\'; a value with ${..} inside [ ] or { } needs quotes: "${NAME}"'),
    ("an alias of itself", "a: &a [*a]\n",
     "p.yaml:1: holds an alias of something that contains it"),
    ("depth", "[" * 20_000,
     "p.yaml:1: is nested too deeply"),
    ("too large", b"#" * (2**20 + 1),
     "p.yaml: is larger than 1,048,576 bytes; that is not a pipeline file"),
]
VARIABLES = [
    ("${BUCKET}", "needs the environment variable BUCKET, which is not set; set it, or write ${BUCKET:-default}"),
    ("${TIDEMARK_HOMER}",
     'needs the environment variable TIDEMARK_HOMER, which is not set (did you mean "TIDEMARK_HOME"?); set it, or write ${TIDEMARK_HOMER:-default}'),
    ("${9LAKE}", 'has "${9LAKE}", which is not ${NAME} or ${NAME:-default}'),
    ("lake/${LAKE", 'has "${" without its "}"; write ${NAME} or ${NAME:-default}'),
]
# fmt: on


@pytest.mark.parametrize(
    ("old", "new", "expected"), [case[1:] for case in PROBLEMS], ids=[case[0] for case in PROBLEMS]
)
def test_a_problem_names_line_key_fault_and_remedy(write: Write, old: str, new: str, expected: str) -> None:
    messages = problems(write(changed((old, new))))
    assert "\n".join(case.removeprefix("p.yaml:") for case in messages) == expected


def test_all_problems_of_a_file_are_told_at_once_in_the_order_of_its_lines(write: Write) -> None:
    text = changed(
        ("connection: kafka_default", "conection: kafka_default"),
        ("max_records: 1000", "max_records: many"),
        ("field: at", "field: nowhere"),
        ("root: lake", "root: ${NOWHERE}"),
    )
    lines = [problem.split(": ")[0] for problem in problems(write(text))]
    assert lines == ["p.yaml:3", "p.yaml:4", "p.yaml:7", "p.yaml:12", "p.yaml:15"]


@pytest.mark.parametrize(
    ("text", "expected"), [case[1:] for case in WHOLE_FILES], ids=[case[0] for case in WHOLE_FILES]
)
def test_a_file_that_is_no_pipeline_is_refused_in_one_line(write: Write, text: str | bytes, expected: str) -> None:
    assert problems(write(text)) == [expected]


def test_a_few_aliases_cannot_stand_for_billions_of_values(write: Write) -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert problems(write("\n".join(rows)))[0].endswith("holds more than 20,000 values")


def test_a_missing_file_a_folder_and_a_missing_folder_are_named(tmp_path: Path) -> None:
    assert problems(tmp_path / "no.yaml") == ["no.yaml: does not exist"]
    (tmp_path / "folder.yaml").mkdir()
    assert problems(tmp_path / "folder.yaml") == ["folder.yaml: is not a file"]
    with pytest.raises(ConfigurationError, match=r"there is no folder of pipelines at .*\n.*TIDEMARK_PIPELINES"):
        load_each(tmp_path / "none")


@pytest.mark.parametrize(("value", "expected"), VARIABLES)
def test_a_variable_that_has_no_value_is_named_with_its_line(write: Write, value: str, expected: str) -> None:
    env = {"TIDEMARK_HOME": "/srv"}
    assert problems(write(changed(("root: lake", f"root: {value}"))), env) == [
        f"p.yaml:15: sinks[0].files.root: {expected}"
    ]


def test_the_value_of_a_variable_is_never_shown(write: Write) -> None:
    values = {"S": "hunter2 geheim"}
    for key in ("connection: kafka_default", "field: at", "root: lake", "pipeline: flights", "max_records: 1000"):
        name = key.split(":")[0]
        value = '"s3://${S}"' if name == "root" else '"${S}"'
        path = write(changed((key, f"{name}: {value}")))
        assert "hunter2" not in "\n".join(problems(path, values))
        assert len(problems(path, values)) == 1


def test_a_kind_that_was_registered_is_allowed_and_named(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SINKS, "toy", "tidemark_toy")
    assert problems(write(changed(("  - files:", "  - toyy:")))) == [
        'p.yaml:14: sinks[0].toyy: unknown key; did you mean "toy"? allowed: delta, files, iceberg, postgres, topic, totals, toy'
    ]
    assert problems(write(changed(("      root: lake", "      root: lake\n  - toy: {foldr: x}")))) == [
        "p.yaml:16: sinks[1].toy.folder: is missing: Where the files lie; a relative folder lies below TIDEMARK_HOME.",
        'p.yaml:16: sinks[1].toy.foldr: unknown key; did you mean "folder"? allowed: folder, name',
    ]
    both = changed(("      root: lake", "      root: lake\n  - toy: {folder: x}\n    files: {root: other}"))
    assert problems(write(both)) == ["p.yaml:17: sinks[1].files: is a second kind beside toy: one sink is of one kind"]
