"""The properties in which a table notes the settings that made it: with others, two rows of one key would stand."""

from collections.abc import Mapping
from typing import Any, Final

from tidemark.errors import SinkRefused

KEY: Final = "tidemark.key"  # the columns of the key, as JSON; [] in a table of all rows


def refuse_other_settings(stored: Mapping[str, str], wanted: Mapping[str, str], context: Mapping[str, Any]) -> None:
    """Raise ``SinkRefused`` when the properties of a table note other settings than these; a table that others have
    made notes nothing."""
    for name, value in wanted.items():
        if stored.get(name, value) != value:
            raise SinkRefused(
                f"the table was made with {name} = {stored[name]}, and the pipeline file says {value}",
                next_step=f"correct {name.removeprefix('tidemark.')} of the sink; or give it a table of its own, and "
                "read the topic into it from its begin",
                **context,
            )
