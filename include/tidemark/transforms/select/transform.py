"""Opens ``select``: its entries are written between SELECT and FROM."""

from collections.abc import Mapping
from typing import Any

from tidemark.transforms.query import Query


def open_transform(options: Mapping[str, Any]) -> Query:
    return Query("SELECT " + ",\n".join(options["columns"]) + "\nFROM batch")
