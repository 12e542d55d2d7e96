"""Counts the fields that records have and their schema has not, by name."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

NAMED_FIELDS = 100  # of one task or manifest; the others are counted as OTHER_FIELDS
OTHER_FIELDS = ""  # the path that no field has


@dataclass(frozen=True)
class UnknownField:
    """A field by its path, such as ``address.zip``, how many records have it, and the first of them.

    The first one is that of the lowest topic, partition and offset, so it is the same however tasks share the records.
    ``[]`` in a path stands for each element of a list, or each value of a map.
    """

    path: str
    count: int
    topic: str
    partition: int
    offset: int

    @property
    def name(self) -> str:
        """The path, for people."""
        return self.path if self.path != OTHER_FIELDS else "other fields"

    def plus(self, other: "UnknownField") -> "UnknownField":
        """Both together; this one's path stays."""
        first = min(self, other, key=lambda field: (field.topic, field.partition, field.offset))
        return replace(first, path=self.path, count=self.count + other.count)


def fields_together(fields: Iterable[UnknownField]) -> tuple[UnknownField, ...]:
    """Counts of the same path added up, by path; those after the first ``NAMED_FIELDS`` as ``OTHER_FIELDS``, last.

    The first by name are kept, and a field that comes later never takes the place of one before it. So the result is
    the same in whatever order, and in however many steps, counts come together.
    """
    together: dict[str, UnknownField] = {}
    for field in fields:
        together[field.path] = together[field.path].plus(field) if field.path in together else field
    others = [together.pop(OTHER_FIELDS)] if OTHER_FIELDS in together else []
    by_path = [together[path] for path in sorted(together)]
    others += [replace(field, path=OTHER_FIELDS) for field in by_path[NAMED_FIELDS:]]
    if not others:
        return tuple(by_path)
    last, *rest = others
    for field in rest:
        last = last.plus(field)
    return (*by_path[:NAMED_FIELDS], last)
