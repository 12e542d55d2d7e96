"""Finds libraries that a plain install of the package lacks before anything starts, and names the command to install
them.

Standard library only: executors import it too.
"""

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Final

from tidemark.errors import ConfigurationError

# The modules that each extra of pyproject.toml installs, by their import names. What a provider needs stands in its
# ``provider.py``.
EXTRAS: Final = {
    "airflow": ("airflow",),
    "avro": ("fastavro",),  # also for files in Avro, which the core writes
    "connect": ("grpc", "grpc_status"),
}


def problem_with_extra(extra: str) -> str | None:
    """Return which libraries of an extra this Python lacks, with the command to install them; None if it has all."""
    absent = absent_libraries(EXTRAS[extra])
    return f"{absent}; install it: {command(extra)}" if absent else None


def absent_libraries(modules: Sequence[str]) -> str | None:
    """Return which of these modules this Python lacks, as the end of a sentence; None if it has all."""
    names = [name for name in modules if not is_installed(name)]
    return f"needs {', '.join(names)}, not installed here" if names else None


def is_installed(name: str) -> bool:
    """Return whether a module can be imported, without importing it. A folder without Python files is no module."""
    try:
        spec = find_spec(name)
    except ModuleNotFoundError:  # its parent package is missing
        return False
    return spec is not None and spec.origin is not None


def import_for(what: str, module: str, install: str) -> ModuleType:
    """Import a module that belongs to ``what``, a kind or a format.

    Raises ``ConfigurationError`` if the module needs a library that this Python lacks; the command ``install`` installs
    the library.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        first = (missing.name or "").partition(".")[0]
        if first in ("", module.partition(".")[0]):
            raise
        raise ConfigurationError(
            f"{what} needs the package {first}, which this Python does not have",
            next_step=f"install it here and where Spark's executors run: {install or f'pip install {first}'}",
        ) from missing


def command(extra: str) -> str:
    """Return the shell command that installs an extra."""
    return f'pip install "tidemark[{extra}]"'


def require(extra: str, what: str) -> None:
    """Raise ``ConfigurationError`` if this Python lacks the extra, which ``what`` needs."""
    if absent := absent_libraries(EXTRAS[extra]):
        raise ConfigurationError(f"{what} {absent}", next_step=command(extra))
