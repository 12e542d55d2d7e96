"""A schema of a registry, as the client returns it and as orders and receipts store it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

OF_FILE: Final = -1  # the id of the schema of a file


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema as the registry stores it, with all that it refers to.

    ``references`` are (name, text), each after those that it needs itself.
    """

    id: int | str  # a number, or a UUID
    kind: str  # AVRO, PROTOBUF or JSON
    text: str
    references: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """The name in messages: its id, or a word for the schema of a file."""
        return "of the file" if self.is_of_file else str(self.id)

    @property
    def is_of_file(self) -> bool:
        return self.id == OF_FILE

    @property
    def number(self) -> int:
        """The id for a frame that has a number."""
        assert isinstance(self.id, int), "only registries with numbers are written to"
        return self.id

    def as_dict(self) -> dict[str, Any]:
        return {"id": self.id, "kind": self.kind, "text": self.text, "references": [list(r) for r in self.references]}

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> "RegisteredSchema":
        return cls(raw["id"], raw["kind"], raw["text"], tuple((name, text) for name, text in raw["references"]))


class UnknownSchema(Exception):
    """The registry answered that it has no such schema, subject or version."""
