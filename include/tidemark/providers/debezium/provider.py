"""Names what this provider brings: changes of a table, as Debezium writes them."""

from typing import Final

from tidemark.providers import Provider

PROVIDER: Final = Provider(
    "debezium",
    envelopes={"debezium": "tidemark.providers.debezium"},
)
