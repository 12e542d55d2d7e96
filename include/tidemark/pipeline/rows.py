"""The columns of a pipeline's rows after its transforms; event time and sinks are checked against them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tidemark.config.base import wrong_at
from tidemark.decoders.settings import RowSettings
from tidemark.decoders.topic_settings import RecordSettings
from tidemark.errors import ConfigurationError
from tidemark.model.order import TransformOrder
from tidemark.transforms.settings import TransformSettings

if TYPE_CHECKING:
    import pyarrow as pa

    from tidemark.transforms.sequence import Columns


class TransformedRows:
    """The facts that are known of rows after ``transforms``. A column that may be null counts as nullable."""

    def __init__(self, decode: RecordSettings, transforms: Sequence[TransformOrder]) -> None:
        self.format = decode.format
        self._decode = decode
        self._transforms = transforms

    def field_types(self) -> dict[str, str]:
        return {field.name: str(field.type) for field in self.arrow_schema()}

    def never_null(self) -> set[str]:
        return {field.name for field in self.arrow_schema() if not field.nullable}

    def tombstone_fields(self) -> tuple[str, ...]:
        return self._columns().of_tombstones

    def arrow_schema(self) -> "pa.Schema":
        return self._columns().schema

    def fans_out(self) -> bool:
        return self._columns().fans_out

    def _columns(self) -> "Columns":
        from tidemark.transforms.sequence import columns_after  # needs pyarrow, and DuckDB for SQL

        return columns_after(self._decode.record_order(), self._transforms)


def rows_for_sinks(
    decode: RecordSettings, transform: Sequence[TransformSettings], code: Mapping[str, str]
) -> RowSettings | None:
    """Return the rows that sinks get; None while only a schema registry knows their columns."""
    rows = decode.rows()
    return TransformedRows(decode, [entry.order(code) for entry in transform]) if transform and rows else rows


def check_transforms(transform: Sequence[TransformSettings], decode: RecordSettings, code: Mapping[str, str]) -> None:
    """Raise for the first transform that cannot work on the columns that it gets, as far as they are known."""
    from tidemark.transforms.sequence import WrongTransform, columns_after

    orders = []
    for index, entry in enumerate(transform):
        try:
            orders.append(entry.order(code))
        except ConfigurationError as problem:
            raise wrong_at((index, entry.kind), f"does not fit: {problem.what}") from None
    if decode.rows() is None:
        return
    try:
        columns_after(decode.record_order(), orders)
    except WrongTransform as problem:
        hint = f"; {problem.next_step}" if problem.next_step else ""
        raise wrong_at((problem.position, problem.kind), f"does not fit: {problem.wrong.what}{hint}") from None
