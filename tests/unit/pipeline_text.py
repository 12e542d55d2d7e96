"""A pipeline file to change, and what is said about it."""

from pathlib import Path

import pytest

from tidemark.pipeline.loader import load
from tidemark.pipeline.problems import InvalidPipelines

GOOD = """\
pipeline: flights
source:
  kafka:
    connection: kafka_default
    topics: [flights]
    slice:
      max_records: 1000
decode:
  format: json
  schema: id BIGINT NOT NULL, at TIMESTAMP, gate STRING, late BOOLEAN
event_time:
  field: at
sinks:
  - files:
      root: lake
"""


def changed(*changes: tuple[str, str]) -> str:
    """``GOOD`` with each old text, which must be there once, replaced by the new one."""
    text = GOOD
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def problems(path: Path, env: dict[str, str] | None = None) -> list[str]:
    """The lines about a file, which must be refused, without its folder."""
    with pytest.raises(InvalidPipelines) as caught:
        load(path, env or {})
    return [str(problem).removeprefix(f"{path.parent}/") for problem in caught.value.problems]
