"""What a table notes of the settings that made it, in properties: with others, rows of one key would lie apart."""

from collections.abc import Mapping
from typing import Any, Final

from deltalake import DeltaTable

from tidemark.errors import SinkRefused

KEY: Final = "tidemark.key"  # the columns of the key, as JSON
BUCKETS: Final = "tidemark.buckets"


def refuse_other_property(table: DeltaTable, name: str, wanted: str, context: Mapping[str, Any]) -> None:
    """Raise ``SinkRefused`` when the table notes something else than these settings; a table that others have made
    notes nothing."""
    noted = table.metadata().configuration.get(name, wanted)
    if noted != wanted:
        raise SinkRefused(
            f"the table was made with {name} = {noted}, and the pipeline file says {wanted}",
            next_step="correct key and buckets of the sink; or give it a table of its own (sinks.delta.location), and "
            "read the topic into it from its begin",
            **context,
        )
