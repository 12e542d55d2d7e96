"""Opens ``filter``: a condition in SQL."""

from collections.abc import Mapping
from typing import Any

from tidemark.transforms.query import Query


def open_transform(options: Mapping[str, Any]) -> Query:
    return Query(f"SELECT * FROM batch WHERE (\n{options['condition']}\n)")  # noqa: S608 - checked as parsed
