"""The key of formats where lists may be far larger as columns than in the record."""

from pydantic import Field

from tidemark.config.base import Size
from tidemark.decoders.settings import DecodeSettings

MAX_LIST_BYTES = 64 * 2**20


class ListSettings(DecodeSettings):
    """A format that leaves out of an element what is not set."""

    max_list_bytes: Size = Field(
        default=MAX_LIST_BYTES,
        description="Bytes that the elements of all lists and maps of a record may take as columns, texts not counted; "
        "a record with more is a dead letter.",
        json_schema_extra={"default": "64MiB"},
    )
