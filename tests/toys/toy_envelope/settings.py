"""``decode: {.., envelope: toy}``."""

from collections.abc import Collection
from typing import Any

from tidemark.decoders.envelopes.envelope_settings import EnvelopeSettings


class Settings(EnvelopeSettings):
    """A change of a row: its values are those of ``data``; ``type`` delete deletes the row that the key names."""

    kind = "toy"

    def further_columns(self) -> Collection[str]:
        return ()

    def order(self) -> dict[str, Any]:
        return {"kind": self.kind}
