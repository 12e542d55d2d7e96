"""The columns of a Protobuf message.

A reader (``runtime.py`` or ``fast.py``) builds plain arrays: a message becomes a struct, an enum its number, a map a
list of entries whose keys are text. ``finished`` turns these into columns that every sink can store. So both readers
give the same columns.

    Protobuf                                column
    double, float, bool, string, bytes      float64, float32, bool, string, binary
    int32, sint32, sfixed32                 int32
    int64, sint64, sfixed64                 int64
    uint32, fixed32                         int64
    uint64, fixed64                         decimal(20, 0)
    enum                                    string: the name of the value; a number without a name as its digits
    message, group                          struct; one without fields: bool, true where it is set
    repeated                                list
    map                                     map with keys of text, sorted by key
    google.protobuf.Timestamp               timestamp(us, UTC), cut to microseconds
    google.protobuf.Int64Value and its like  the value, null where it is not set

A field with presence (``optional``, a member of a ``oneof``, a message) is null if it is not set. Other fields then
have their default.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from tidemark.decoders.names import check_names
from tidemark.decoders.one_by_one import Misfit
from tidemark.errors import ConfigurationError

LEAF_LIMIT = 2_000  # most columns without parts, because a small schema can stand for millions
FIRST_SECOND = -62_135_596_800  # the first second of the year 1
LAST_SECOND = 253_402_300_799  # the last second of the year 9999
DEPTH_LIMIT = 32  # nested messages, as in JSON
NANOS = 999_999_999
_WRAPPERS = {
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
_SCALARS: dict[int, tuple[pa.DataType, pa.DataType]] = {  # for each type of field: (plain type, column type)
    FieldDescriptor.TYPE_DOUBLE: (pa.float64(), pa.float64()),
    FieldDescriptor.TYPE_FLOAT: (pa.float32(), pa.float32()),
    FieldDescriptor.TYPE_BOOL: (pa.bool_(), pa.bool_()),
    FieldDescriptor.TYPE_STRING: (pa.string(), pa.string()),
    FieldDescriptor.TYPE_BYTES: (pa.binary(), pa.binary()),
    **dict.fromkeys(
        (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_SINT32, FieldDescriptor.TYPE_SFIXED32),
        (pa.int32(), pa.int32()),
    ),
    **dict.fromkeys(
        (FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_SINT64, FieldDescriptor.TYPE_SFIXED64),
        (pa.int64(), pa.int64()),
    ),
    **dict.fromkeys((FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_FIXED32), (pa.uint32(), pa.int64())),
    **dict.fromkeys((FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64), (pa.uint64(), pa.decimal128(20, 0))),
}


class Shape(ABC):
    """One type: ``plain`` is the type that readers build, ``arrow`` the type of the column."""

    @property
    @abstractmethod
    def plain(self) -> pa.DataType: ...

    @property
    @abstractmethod
    def arrow(self) -> pa.DataType: ...

    @abstractmethod
    def finished(self, plain: pa.Array) -> pa.Array:
        """Return the column; raises ``Misfit``, whose message names the field."""


@dataclass(frozen=True)
class Scalar(Shape):
    number: int  # one of the types of ``FieldDescriptor``

    @property
    def plain(self) -> pa.DataType:
        return _SCALARS[self.number][0]

    @property
    def arrow(self) -> pa.DataType:
        return _SCALARS[self.number][1]

    def finished(self, plain: pa.Array) -> pa.Array:
        return plain.cast(self.arrow)


@dataclass(frozen=True)
class Enum(Shape):
    numbers: tuple[int, ...]
    names: tuple[str, ...]
    plain = pa.int32()
    arrow = pa.string()

    @cached_property
    def _known(self) -> tuple[pa.Array, pa.Array]:
        return pa.array(self.numbers, pa.int32()), pa.array(self.names, pa.string())

    def finished(self, plain: pa.Array) -> pa.Array:
        numbers, names = self._known
        texts = names.take(pc.index_in(plain, value_set=numbers))
        return pc.coalesce(texts, plain.cast(pa.string())) if texts.null_count > plain.null_count else texts


@dataclass(frozen=True)
class Time(Shape):
    """``google.protobuf.Timestamp``."""

    plain = pa.struct([("seconds", pa.int64()), ("nanos", pa.int32())])
    arrow = pa.timestamp("us", "UTC")

    def finished(self, plain: pa.Array) -> pa.Array:
        seconds, nanos = plain.flatten()
        for values, lowest, highest in ((seconds, FIRST_SECOND, LAST_SECOND), (nanos, 0, NANOS)):
            ends = pc.min_max(values).as_py()
            if ends["min"] is not None and not lowest <= ends["min"] <= ends["max"] <= highest:
                raise Misfit("not a time of the years 1 to 9999")
        microseconds = pc.divide(nanos.cast(pa.int64()), 1_000)
        return pc.add(pc.multiply(seconds, 1_000_000), microseconds).cast(self.arrow)


@dataclass(frozen=True)
class Wrapped(Shape):
    """``google.protobuf.Int64Value`` and its like: a message for one value that may be absent."""

    value: Shape

    @property
    def plain(self) -> pa.DataType:
        return pa.struct([("value", self.value.plain)])

    @property
    def arrow(self) -> pa.DataType:
        return self.value.arrow

    def finished(self, plain: pa.Array) -> pa.Array:
        return self.value.finished(plain.flatten()[0])


@dataclass(frozen=True)
class Nothing(Shape):
    """A message without fields. Its column is true where the message is set, else null."""

    plain = pa.struct([])
    arrow = pa.bool_()

    def finished(self, plain: pa.Array) -> pa.Array:
        return pc.if_else(plain.is_valid(), True, None).cast(self.arrow)


@dataclass(frozen=True)
class ListOf(Shape):
    element: Shape

    @property
    def plain(self) -> pa.DataType:
        return pa.list_(pa.field("element", self.element.plain))

    @property
    def arrow(self) -> pa.DataType:
        return pa.list_(pa.field("element", self.element.arrow))

    def finished(self, plain: pa.Array) -> pa.Array:
        mask = plain.is_null() if plain.null_count else None
        return pa.ListArray.from_arrays(plain.offsets, self.element.finished(plain.values), type=self.arrow, mask=mask)


@dataclass(frozen=True)
class MapOf(Shape):
    key: int
    item: Shape

    @property
    def plain(self) -> pa.DataType:
        return pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", self.item.plain)])))

    @property
    def arrow(self) -> pa.DataType:
        return pa.map_(pa.string(), self.item.arrow)

    def finished(self, plain: pa.Array) -> pa.Array:
        keys, items = plain.values.flatten()
        mask = plain.is_null() if plain.null_count else None
        return pa.MapArray.from_arrays(plain.offsets, keys, self.item.finished(items), type=self.arrow, mask=mask)


@dataclass(frozen=True)
class Field:
    """A field of a message. ``presence`` is true if it can be unset; then its column is null."""

    name: str
    shape: Shape
    presence: bool
    required: bool

    @property
    def arrow(self) -> pa.Field:
        return pa.field(self.name, self.shape.arrow, nullable=self.presence and not self.required)

    def finished(self, plain: pa.Array) -> pa.Array:
        try:
            return self.shape.finished(plain)
        except Misfit as misfit:
            raise Misfit(f"{self.name}: {misfit}") from None


@dataclass(frozen=True)
class MessageShape(Shape):
    """A message with fields. ``choices`` has, for each ``oneof`` with several members, the names of its fields."""

    fields: tuple[Field, ...]
    choices: tuple[tuple[str, ...], ...] = ()

    @property
    def plain(self) -> pa.DataType:
        return pa.struct([(field.name, field.shape.plain) for field in self.fields])

    @property
    def arrow(self) -> pa.DataType:
        return pa.struct([field.arrow.with_nullable(True) for field in self.fields])

    @property
    def schema(self) -> pa.Schema:
        """The columns of a record that is such a message."""
        return pa.schema([field.arrow for field in self.fields])

    def columns(self, parts: Mapping[str, pa.Array]) -> list[pa.Array]:
        """Return the columns in the order of the fields, from plain arrays in any order; raises ``Misfit``."""
        return [field.finished(parts[field.name]) for field in self.fields]

    def finished(self, plain: pa.Array) -> pa.Array:
        mask = plain.is_null() if plain.null_count else None
        return pa.StructArray.from_arrays(self.columns(parts_of(plain)), fields=list(self.arrow), mask=mask)


def parts_of(plain: pa.Array) -> dict[str, pa.Array]:
    """Return the arrays of a struct's fields by name, with nulls where the struct is null."""
    return {field.name: part for field, part in zip(plain.type, plain.flatten(), strict=True)}


def message_shape(descriptor: Descriptor) -> MessageShape:
    """Return the columns of a message.

    Raises ``ConfigurationError`` for a message that contains itself, for names that cannot be columns, and for more
    than ``LEAF_LIMIT`` columns.
    """
    shape = _Builder().message(descriptor, ())
    if not isinstance(shape, MessageShape):
        raise ConfigurationError(
            f"{descriptor.full_name} cannot be the message of a record: it stands for one value, or has no fields",
            next_step="name a message with fields of its own",
        )
    return shape


class _Builder:
    def __init__(self) -> None:
        self._leaves = 0

    def message(self, descriptor: Descriptor, path: tuple[Descriptor, ...]) -> Shape:
        if descriptor in path:
            way = " -> ".join(each.full_name for each in (*path[path.index(descriptor) :], descriptor))
            raise ConfigurationError(
                f"the message is recursive ({way}), and a column has a fixed depth",
                next_step="read these records with format: raw, or with a message that leaves the recursive field out: "
                "fields that a message does not name are skipped",
            )
        path = (*path, descriptor)
        if len(path) > DEPTH_LIMIT:
            raise ConfigurationError(
                f"{path[0].full_name} has messages nested deeper than {DEPTH_LIMIT}", next_step="flatten the message"
            )
        if descriptor.full_name == "google.protobuf.Timestamp":
            return self._leaf(Time(), path)
        if descriptor.full_name in _WRAPPERS:
            return Wrapped(self._single(descriptor.fields_by_name["value"], path))
        if not descriptor.fields:
            return self._leaf(Nothing(), path)
        check_names(
            [field.name for field in descriptor.fields],
            lambda name: f"{descriptor.full_name}.{name}",
            inside=len(path) > 1,
        )
        choices = [tuple(field.name for field in oneof.fields) for oneof in descriptor.oneofs]
        fields = tuple(self._field(field, path) for field in descriptor.fields)
        return MessageShape(fields, tuple(choice for choice in choices if len(choice) > 1))

    def _field(self, field: FieldDescriptor, path: tuple[Descriptor, ...]) -> Field:
        if not field.is_repeated:
            return Field(field.name, self._single(field, path), field.has_presence, field.is_required)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            entry = field.message_type.fields_by_name
            return Field(field.name, MapOf(entry["key"].type, self._single(entry["value"], path)), False, False)
        return Field(field.name, ListOf(self._single(field, path)), False, False)

    def _single(self, field: FieldDescriptor, path: tuple[Descriptor, ...]) -> Shape:
        if field.message_type is not None:
            return self.message(field.message_type, path)
        return self._leaf(_enum(field.enum_type) if field.enum_type is not None else Scalar(field.type), path)

    def _leaf(self, shape: Shape, path: tuple[Descriptor, ...]) -> Shape:
        self._leaves += 1
        if self._leaves > LEAF_LIMIT:
            raise ConfigurationError(
                f"{path[0].full_name} has more than {LEAF_LIMIT:,} fields, including those of messages inside it",
                next_step="read with a message that names fewer: fields that a message does not name are skipped",
            )
        return shape


def _enum(descriptor: EnumDescriptor) -> Enum:
    first: dict[int, str] = {}
    for value in descriptor.values:
        first.setdefault(value.number, value.name)
    return Enum(tuple(first), tuple(first.values()))
