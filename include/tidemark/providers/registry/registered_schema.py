"""A schema of a registry, as the client gives it and as orders and receipts hold it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema as the registry holds it, with all it refers to: ``references`` are (name, text), needed ones first."""

    id: int
    kind: str  # AVRO, PROTOBUF or JSON
    text: str
    references: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """For people: its id, if the registry gave it one."""
        return str(self.id) if self.id >= 0 else "of the file"

    def as_dict(self) -> dict[str, Any]:
        return {"id": self.id, "kind": self.kind, "text": self.text, "references": [list(r) for r in self.references]}

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> "RegisteredSchema":
        return cls(raw["id"], raw["kind"], raw["text"], tuple((name, text) for name, text in raw["references"]))


class UnknownSchema(Exception):
    """The registry answered that it has no such schema, subject or version."""
