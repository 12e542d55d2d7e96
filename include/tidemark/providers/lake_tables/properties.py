"""The properties in which a table notes its sink's settings: with other settings a key could have two rows."""

from collections.abc import Mapping
from typing import Any, Final

from tidemark.errors import SinkRefused

KEY: Final = "tidemark.key"  # the columns of the key, as JSON; [] in a table of all rows


def refuse_other_settings(stored: Mapping[str, str], wanted: Mapping[str, str], context: Mapping[str, Any]) -> None:
    """Raise ``SinkRefused`` if the properties of a table note other settings than these. A table that others created
    has no such properties."""
    for name, value in wanted.items():
        if stored.get(name, value) != value:
            raise SinkRefused(
                f"the table was made with {name} = {stored[name]}, but the pipeline file says {value}",
                next_step=f"correct {name.removeprefix('tidemark.')} of the sink; or give it a table of its own, and "
                "read the topic into it from its begin",
                **context,
            )
