"""Counts, by name, the fields that records have but their schema does not."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

NAMED_FIELDS = 100  # per task or manifest; the others are counted as OTHER_FIELDS
OTHER_FIELDS = ""  # no field has this path


@dataclass(frozen=True)
class UnknownField:
    """A field by its path, such as ``address.zip``, with the number of records that have it, and the first of them.

    The first is the one with the lowest topic, partition and offset, so it does not depend on how tasks share the
    records. ``[]`` in a path stands for each element of a list, or each value of a map.
    """

    path: str
    count: int
    topic: str
    partition: int
    offset: int

    @property
    def name(self) -> str:
        """Return the path, for a message."""
        return self.path if self.path != OTHER_FIELDS else "other fields"

    def plus(self, other: "UnknownField") -> "UnknownField":
        """Return the sum of both counts, under this one's path."""
        first = min(self, other, key=lambda field: (field.topic, field.partition, field.offset))
        return replace(first, path=self.path, count=self.count + other.count)


def fields_together(fields: Iterable[UnknownField]) -> tuple[UnknownField, ...]:
    """Return the counts added up and sorted by path. After the first ``NAMED_FIELDS`` paths, the others are counted
    together as ``OTHER_FIELDS``, last.

    The first paths by name are kept, not the first that come. So the result does not depend on the order, or the number
    of steps, in which counts are added up.
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
