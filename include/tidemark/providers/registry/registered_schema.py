"""A schema of a registry, as the client returns it and as orders and receipts store it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema as the registry stores it, with all that it refers to.

    ``references`` are (name, text), each after those that it needs itself.
    """

    id: int
    kind: str  # AVRO, PROTOBUF or JSON
    text: str
    references: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """The name in messages: its id, or a word for the schema of a file."""
        return str(self.id) if self.id >= 0 else "of the file"

    def as_dict(self) -> dict[str, Any]:
        return {"id": self.id, "kind": self.kind, "text": self.text, "references": [list(r) for r in self.references]}

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> "RegisteredSchema":
        return cls(raw["id"], raw["kind"], raw["text"], tuple((name, text) for name, text in raw["references"]))


class UnknownSchema(Exception):
    """The registry answered that it has no such schema, subject or version."""
