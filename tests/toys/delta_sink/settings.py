"""``sinks: [{delta: {folder: ..}}]``."""

from datetime import datetime
from typing import Any

from pydantic import Field

from tests.toys.toy_sink.settings import Settings as FolderSettings
from tidemark.config.base import Name


class Settings(FolderSettings):
    """A Delta table in one folder."""

    kind = "delta"

    name: Name = Field(default="delta", description="Name of this sink, unique in the pipeline.")

    def order(self) -> dict[str, Any]:
        return {"max_objects": 10_000, "max_file_bytes": 128 * 2**20}

    def place_of(self, pipeline_name: str, topic: str, when: datetime | None) -> str:
        return self.folder if when else f"{self.folder}/_dead_letters"
