"""Checks that names of fields can be names of columns."""

from collections.abc import Callable

from tidemark.characters import is_text
from tidemark.errors import ConfigurationError


def check_names(names: list[str], place: Callable[[str], str]) -> None:
    """Raise ``ConfigurationError`` unless all can be columns of one table; ``place`` gives the place of a name."""
    seen: dict[str, str] = {}
    for name in names:
        if not name or name.startswith("_") or not is_text(name):
            raise ConfigurationError(
                f"{place(name)} cannot be the name of a column",
                next_step="use a name that is not empty and does not begin with _ (those are Tidemark's own columns)",
            )
        twin = seen.get(name.casefold())
        if twin is not None:
            raise ConfigurationError(
                f"{place(name)} has the same name as {twin}",
                next_step="keep one of the two: in Spark and most engines upper and lower case of a name are the same",
            )
        seen[name.casefold()] = name
