"""A world for each kind of sink, and each place of it, with which the tests kill real processes; by name."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.worlds.world import World

# The fixture that makes it, and what it is asked for.
KINDS: Mapping[str, tuple[str, dict[str, bool]]] = {
    "lake": ("make_world", {}),
    "table": ("make_table_world", {}),
    "table in the manifest database": ("make_table_world", {"same": True}),
    "lake and table": ("make_table_world", {"has_lake": True}),
    "bucket": ("make_s3_world", {}),
    "topic": ("make_topic_world", {}),
    "lake and topic": ("make_topic_world", {"has_lake": True}),
    "iceberg": ("make_iceberg_world", {}),
    "delta": ("make_delta_world", {}),
    "delta with a key": ("make_keyed_delta_world", {}),
    "iceberg with a key": ("make_keyed_iceberg_world", {}),
    "totals": ("make_totals_world", {}),
    "totals in the manifest database": ("make_totals_world", {"same": True}),
    "lake and totals": ("make_totals_world", {"has_lake": True}),
    "dynamodb": ("make_dynamo_world", {}),
}


def world_of(kind: str, request: pytest.FixtureRequest, **settings: Any) -> World:
    """Starts only the services that this kind needs."""
    fixture, words = KINDS[kind]
    world: World = request.getfixturevalue(fixture)(**words, **settings)
    return world
