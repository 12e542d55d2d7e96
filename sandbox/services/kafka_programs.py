"""Kafka's own programs for the shell of `make up`, as far as Tidemark's messages name them, without their 30 jars.

`kafka-topics.sh` and `kafka-configs.sh` accept the same words as Apache Kafka's programs of these names.
"""

import argparse
import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

PROGRAMS = ("kafka-topics.sh", "kafka-configs.sh")
ANSWER_S = 15


def write_programs(folder: Path) -> Path:
    """Make the programs in a folder, which the shell then has on its PATH, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in PROGRAMS:
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).resolve()}" {name} "$@"\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return folder


def main(program: str, words: Sequence[str]) -> str:
    """Do what the words say, and return the output. Raises ``KafkaException`` with the broker's words if the broker
    refuses.
    """
    options = _parser(program).parse_args(words)
    admin = AdminClient({"bootstrap.servers": options.bootstrap_server or os.environ["KAFKA_BOOTSTRAP_SERVERS"]})
    if program == "kafka-configs.sh":
        resource = ConfigResource(ResourceType.TOPIC, options.entity_name)
        for name, value in map(_split, options.add_config.split(",")):
            resource.add_incremental_config(ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET))
        admin.incremental_alter_configs([resource])[resource].result(ANSWER_S)
        return f"Completed updating config for topic {options.entity_name}."
    if options.list:
        return "\n".join(sorted(admin.list_topics(timeout=ANSWER_S).topics))
    name = options.topic
    if options.create:
        topic = NewTopic(name, options.partitions, options.replication_factor, config=dict(map(_split, options.config)))
        admin.create_topics([topic])[name].result(ANSWER_S)
        return f"Created topic {name}."
    if options.alter:
        admin.create_partitions([NewPartitions(name, options.partitions)])[name].result(ANSWER_S)
        return ""
    admin.delete_topics([name])[name].result(ANSWER_S)
    return ""


def _split(word: str) -> tuple[str, str]:
    name, _, value = word.partition("=")
    return name, value


def _parser(program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(program)
    parser.add_argument("--bootstrap-server", help="else KAFKA_BOOTSTRAP_SERVERS")
    if program == "kafka-configs.sh":
        parser.add_argument("--alter", action="store_true", required=True)
        parser.add_argument("--entity-type", choices=["topics"], required=True)
        parser.add_argument("--entity-name", required=True)
        parser.add_argument("--add-config", required=True, metavar="NAME=VALUE,..")
        return parser
    what = parser.add_mutually_exclusive_group(required=True)
    for name in ("create", "list", "alter", "delete"):
        what.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--topic")
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--replication-factor", type=int, default=-1)
    parser.add_argument("--config", action="append", default=[], metavar="NAME=VALUE")
    return parser


if __name__ == "__main__":
    try:
        print(main(sys.argv[1], sys.argv[2:]))
    except KafkaException as refused:
        sys.exit(f"error: {refused.args[0].str()}")
