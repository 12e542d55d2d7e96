"""Names what a plain install of the package lacks before anything starts, with the words to install it.

Standard library only: executors import it too.
"""

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final

from tidemark.errors import ConfigurationError

# The modules that each extra of pyproject.toml brings, by the names that they are imported by.
EXTRAS: Final = {
    "airflow": ("airflow",),
    "connect": ("grpc", "grpc_status"),
    "delta": ("deltalake",),
    "hive": ("pyiceberg", "pyiceberg_core", "requests", "sqlalchemy", "thrift"),
    "iceberg": ("pyiceberg", "pyiceberg_core", "requests", "sqlalchemy"),
}
_DISTRIBUTIONS = {"google": "protobuf"}  # where the name to install is not the name to import


def problem_with_extra(extra: str) -> str | None:
    """What this Python lacks of an extra, and what installs it, as a sentence; None when it has all."""
    absent = _absent(extra)
    return f"{absent}; install it: {command(extra)}" if absent else None


def _absent(extra: str) -> str | None:
    names = [name for name in EXTRAS[extra] if not is_installed(name)]
    return f"needs {', '.join(names)}, not installed here" if names else None


def is_installed(name: str) -> bool:
    return find_spec(name) is not None


def command(extra: str) -> str:
    """What a shell installs it with."""
    return f'pip install "tidemark[{extra}]"'


def require(extra: str, what: str) -> None:
    """Raise ``ConfigurationError`` when this Python lacks the extra; ``what`` needs it."""
    if absent := _absent(extra):
        raise ConfigurationError(f"{what} {absent}", next_step=command(extra))


def object_of_kind(path: str, kind: str) -> Any:
    """What ``module:name`` is; ``ConfigurationError`` as ``module_of_kind``."""
    module, _, name = path.partition(":")
    return getattr(module_of_kind(module, kind), name)


def module_of_kind(name: str, kind: str) -> ModuleType:
    """A module of ours that may import what this Python lacks; ``ConfigurationError`` names it. ``kind`` needs it."""
    try:
        return import_module(name)
    except ModuleNotFoundError as missing:
        first = (missing.name or "").partition(".")[0]
        if first in ("", "tidemark"):
            raise
        package = _DISTRIBUTIONS.get(first, first)
        raise ConfigurationError(
            f"{kind} needs the package {package}, which this Python does not have",
            next_step=f"install it here and where Spark's executors run: pip install {package}",
        ) from missing
