"""Carries Tidemark's errors from an executor or a submitted job to the process that waits."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa

from tidemark import errors
from tidemark.errors import TidemarkError, WorkFailed

_CARRIED: Final = re.compile(r'carried failure: (\{"kind".*\})')


def failure_of(error: TidemarkError) -> dict[str, Any]:
    """Return an error as JSON."""
    context = {name: str(value) for name, value in error.context.items()}
    return {"kind": type(error).__name__, "what": error.what, "next_step": error.next_step, "context": context}


def failure_from(raw: dict[str, Any]) -> TidemarkError:
    kind = getattr(errors, raw["kind"], WorkFailed)
    error: TidemarkError = kind(raw["what"], next_step=raw["next_step"], **raw["context"])
    return error


def carrying(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Make Spark's own error carry an error of Tidemark, from a task that makes no report."""
    try:
        yield from batches
    except TidemarkError as error:
        raise RuntimeError(f"carried failure: {json.dumps(failure_of(error))}") from error


def carried_by(failed: Exception) -> TidemarkError | None:
    carried = _CARRIED.search(str(failed))
    return None if carried is None else failure_from(json.loads(carried[1]))
