"""``decode: {.., envelope: {debezium: ..}}``."""

from collections.abc import Collection
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from tidemark.config.values import wrong
from tidemark.decoders.envelopes.envelope_settings import EnvelopeSettings
from tidemark.providers.debezium.parts import PARTS, PLACEHOLDER
from tidemark.providers.debezium.units import Decimals, Unit
from tidemark.text import with_nearest


class Truncate(StrEnum):
    """The treatment of a record that says that a table was truncated."""

    DEAD_LETTER = "dead_letter"
    SKIP = "skip"


class Unsent(StrEnum):
    """The treatment of null in an update without the row before it, where a large value may not have been sent."""

    DEAD_LETTER = "dead_letter"
    KEEP_NULL = "keep_null"


def _part(path: str) -> str:
    if path not in PARTS:
        raise wrong(with_nearest(f"names {path}, which is not a part of Debezium's envelope", path, PARTS, listed=True))
    return path


class Settings(EnvelopeSettings):
    """A change of a row: its values are those of ``after``; ``op`` d deletes the row that the key names."""

    kind = "debezium"

    columns: dict[str, Annotated[str, AfterValidator(_part)]] = Field(
        default={},
        description="Further columns, from other parts of the envelope; null where it has none, and in deletions.",
        examples=[{"op": "op", "lsn": "source.lsn", "changed_at": "source.ts_ms"}],
    )
    times: dict[str, Unit] = Field(
        default={},
        description="The units of columns (also inside them) with times that are numbers, where the record does not "
        "say them: JSON without a schema, Protobuf.",
        examples=[{"created_at": "us", "birthday": "days"}],
    )
    decimals: Decimals | None = Field(
        default=None,
        description="What a text is for a DECIMAL column in JSON without a schema: Debezium's precise mode, or its "
        "string mode. Without it a text that can be both is a dead letter.",
    )
    unavailable_value: str = Field(
        default=PLACEHOLDER,
        min_length=1,
        description="What Debezium writes for a value that the database did not tell it.",
    )
    unavailable: Unsent = Field(
        default=Unsent.DEAD_LETTER,
        description="What becomes of an update without before that has null in a column that can be large. keep_null: "
        "null is always null.",
    )
    flattened: bool = Field(
        default=False,
        description="Whether JSON records were flattened (ExtractNewRecordState).",
    )
    truncate: Truncate = Field(
        default=Truncate.DEAD_LETTER,
        description="What becomes of a record that says that the table was emptied; skip counts it as filtered, and "
        "leaves all rows.",
    )
    signal_table: str = Field(
        default="debezium_signal", description="The table of signals to Debezium, whose rows are filtered."
    )

    def further_columns(self) -> Collection[str]:
        return self.columns

    def order(self) -> dict[str, Any]:
        return {"kind": self.kind, **self.model_dump(mode="json", exclude_defaults=True)}
