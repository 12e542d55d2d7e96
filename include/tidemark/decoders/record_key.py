"""``record_key``, which may stand in place of a list of columns: the columns that the schema of the records' keys
has."""

from typing import Annotated, Final

from pydantic import BeforeValidator, WithJsonSchema

from tidemark.config.values import wrong

RECORD_KEY: Final = ("_record_key",)  # stands for record_key in a list of columns; no data column begins with _


def _columns(value: object) -> object:
    if isinstance(value, str) and value != "record_key":
        raise wrong("must be a list of columns, or record_key: the columns of the schema of the record's key")
    return RECORD_KEY if isinstance(value, str) else value


ColumnsOrRecordKey = Annotated[
    tuple[str, ...],
    BeforeValidator(_columns),
    WithJsonSchema({"anyOf": [{"const": "record_key"}, {"type": "array", "items": {"type": "string"}}]}),
]
