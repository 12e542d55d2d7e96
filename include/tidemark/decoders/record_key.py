"""``record_key`` in place of a list of columns: those of the schema that the keys of records have."""

from typing import Annotated, Final

from pydantic import BeforeValidator, WithJsonSchema

from tidemark.config.values import wrong

RECORD_KEY: Final = ("_record_key",)  # what such a list holds; no column of data begins with _


def _columns(value: object) -> object:
    if isinstance(value, str) and value != "record_key":
        raise wrong("must be a list of columns, or record_key: those of the schema of the record's key")
    return RECORD_KEY if isinstance(value, str) else value


ColumnsOrRecordKey = Annotated[
    tuple[str, ...],
    BeforeValidator(_columns),
    WithJsonSchema({"anyOf": [{"const": "record_key"}, {"type": "array", "items": {"type": "string"}}]}),
]
