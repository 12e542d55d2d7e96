"""The files that schemas import but no registry lists. Serializers include them, and so does this module.

Those of Protobuf itself come with its runtime. The others are written here as messages whose fields are numbered from
1, in their order; a member of a ``oneof`` begins with the name of the oneof. A test compares them with protoc's output.
"""

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

_GOOGLE, _CONFLUENT = "google/type", "confluent/type"
_MESSAGES: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    f"{_CONFLUENT}/decimal": {"Decimal": ("bytes value", "uint32 precision", "int32 scale")},
    f"{_CONFLUENT}/variant": {"Variant": ("bytes metadata", "bytes value")},
    f"{_GOOGLE}/color": {"Color": ("float red", "float green", "float blue", "google.protobuf.FloatValue alpha")},
    f"{_GOOGLE}/date": {"Date": ("int32 year", "int32 month", "int32 day")},
    f"{_GOOGLE}/datetime": {
        "DateTime": (
            "int32 year", "int32 month", "int32 day", "int32 hours", "int32 minutes", "int32 seconds", "int32 nanos",
            "time_offset: google.protobuf.Duration utc_offset", "time_offset: google.type.TimeZone time_zone",
        ),
        "TimeZone": ("string id", "string version"),
    },
    f"{_GOOGLE}/decimal": {"Decimal": ("string value",)},
    f"{_GOOGLE}/expr": {"Expr": ("string expression", "string title", "string description", "string location")},
    f"{_GOOGLE}/fraction": {"Fraction": ("int64 numerator", "int64 denominator")},
    f"{_GOOGLE}/interval": {
        "Interval": ("google.protobuf.Timestamp start_time", "google.protobuf.Timestamp end_time")
    },
    f"{_GOOGLE}/latlng": {"LatLng": ("double latitude", "double longitude")},
    f"{_GOOGLE}/localized_text": {"LocalizedText": ("string text", "string language_code")},
    f"{_GOOGLE}/money": {"Money": ("string currency_code", "int64 units", "int32 nanos")},
    f"{_GOOGLE}/phone_number": {
        "PhoneNumber": (
            "kind: string e164_number", "kind: google.type.PhoneNumber.ShortCode short_code", "string extension",
        ),
        "PhoneNumber.ShortCode": ("string region_code", "string number"),
    },
    f"{_GOOGLE}/postal_address": {
        "PostalAddress": (
            "int32 revision", "string region_code", "string language_code", "string postal_code",
            "string sorting_code", "string administrative_area", "string locality", "string sublocality",
            "repeated string address_lines", "repeated string recipients", "string organization",
        ),
    },
    f"{_GOOGLE}/quaternion": {"Quaternion": ("double x", "double y", "double z", "double w")},
    f"{_GOOGLE}/timeofday": {"TimeOfDay": ("int32 hours", "int32 minutes", "int32 seconds", "int32 nanos")},
}  # fmt: skip
_ENUMS: Final[Mapping[str, tuple[str, str]]] = {  # their values are numbered from 0
    f"{_GOOGLE}/calendar_period": (
        "CalendarPeriod", "CALENDAR_PERIOD_UNSPECIFIED DAY WEEK FORTNIGHT MONTH QUARTER HALF YEAR"
    ),
    f"{_GOOGLE}/dayofweek": (
        "DayOfWeek", "DAY_OF_WEEK_UNSPECIFIED MONDAY TUESDAY WEDNESDAY THURSDAY FRIDAY SATURDAY SUNDAY"
    ),
    f"{_GOOGLE}/month": (
        "Month",
        "MONTH_UNSPECIFIED JANUARY FEBRUARY MARCH APRIL MAY JUNE JULY AUGUST SEPTEMBER OCTOBER NOVEMBER DECEMBER",
    ),
}  # fmt: skip
_IMPORTS: Final[Mapping[str, str]] = {
    f"{_GOOGLE}/color": "wrappers", f"{_GOOGLE}/datetime": "duration", f"{_GOOGLE}/interval": "timestamp"
}  # fmt: skip
_OLD_NAME = "confluent/types/decimal.proto"  # the name in Confluent's Python client


def known_files(names: Iterable[str], others: Iterable[str]) -> list[FileDescriptorProto]:
    """Return the known files among these imports, with what they import themselves, but without those in ``others``."""
    files: dict[str, FileDescriptorProto] = {}
    waiting = [*names]
    without = {*others}
    while waiting:
        name = waiting.pop()
        file = None if name in files or name in without else _known(name)
        if file is not None:
            files[name] = file
            waiting += file.dependency
    return list(files.values())


def _known(name: str) -> FileDescriptorProto | None:
    stem = name.removesuffix(".proto")
    if name == _OLD_NAME:
        target = f"{_CONFLUENT}/decimal.proto"
        return FileDescriptorProto(name=name, syntax="proto3", dependency=[target], public_dependency=[0])
    if stem in _MESSAGES or stem in _ENUMS:
        return _written_here(stem)
    if not name.startswith("google/protobuf/"):
        return None
    try:
        module = import_module(f"{stem.replace('/', '.')}_pb2")
    except ImportError:
        return None
    copy = FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(copy)
    return copy


def _written_here(stem: str) -> FileDescriptorProto:
    package = stem.rpartition("/")[0].replace("/", ".")
    file = FileDescriptorProto(name=f"{stem}.proto", package=package, syntax="proto3")
    if stem in _IMPORTS:
        file.dependency.append(f"google/protobuf/{_IMPORTS[stem]}.proto")
    if stem in _ENUMS:
        name, values = _ENUMS[stem]
        file.enum_type.append(_enum(name, values.split()))
    messages: dict[str, DescriptorProto] = {}
    for name, fields in _MESSAGES.get(stem, {}).items():
        outer, _, own = name.rpartition(".")
        messages[name] = messages[outer].nested_type.add(name=own) if outer else file.message_type.add(name=own)
        for number, text in enumerate(fields, 1):
            _add_field(messages[name], number, text)
    return file


def _enum(name: str, values: list[str]) -> EnumDescriptorProto:
    enum = EnumDescriptorProto(name=name)
    for number, value in enumerate(values):
        enum.value.add(name=value, number=number)
    return enum


def _add_field(message: DescriptorProto, number: int, text: str) -> None:
    choice, _, rest = text.rpartition(": ")
    label, kind, name = ["optional", *rest.split()][-3:]
    field = message.field.add(name=name, number=number)
    field.label = FieldDescriptorProto.Label.Value(f"LABEL_{label.upper()}")
    if "." in kind:
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{kind}"
    else:
        field.type = FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
    if choice:
        if choice not in [oneof.name for oneof in message.oneof_decl]:
            message.oneof_decl.add(name=choice)
        field.oneof_index = len(message.oneof_decl) - 1
