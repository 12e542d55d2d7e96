"""Opens ``sql``: a SELECT, from the pipeline file or from a file beside it."""

from collections.abc import Mapping
from typing import Any

from tidemark.transforms.query import Query


def open_transform(options: Mapping[str, Any]) -> Query:
    return Query(options["text"], options["file"])
