"""Carries Tidemark's errors from an executor or a submitted job to the process that waits, and finds the cause in those
of Spark.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa

from tidemark import errors
from tidemark.errors import TidemarkError, WorkFailed

_EXCEPTION: Final = re.compile(r"(?:\w+\.)+\w*(?:Exception|Error): ")
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


def cause_of(error: Exception) -> str:
    """Return the line of Spark's message that gives the cause, without the stack.

    That is the innermost cause, or an exception around it that ends with the same words: it says more, such as which
    program cannot be run.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [number for number, line in enumerate(lines) if line.startswith("Caused by:")]
    if not causes:
        return lines[0][:500]
    innermost = lines[causes[-1]].removeprefix("Caused by:").strip()
    words = innermost.partition(": ")[2]
    around = [line for line in lines[: causes[-1]] if words and line.endswith(words)]
    begins = [match.start() for match in _EXCEPTION.finditer(around[-1])] if around else []
    return (around[-1][begins[-1] :] if begins else innermost)[:500]
