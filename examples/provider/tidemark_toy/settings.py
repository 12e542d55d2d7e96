"""``sinks: [{toy: {folder: ..}}]``."""

from datetime import datetime
from typing import Any

from pydantic import Field

from tidemark.config.base import Name, Root
from tidemark.decoders.settings import RowSettings
from tidemark.paths import is_remote
from tidemark.sinks.settings import SinkSettings


class Settings(SinkSettings):
    """JSON lines in one folder."""

    kind = "toy"

    name: Name = Field(default="toy", description="Name of this sink, unique in the pipeline.")
    folder: Root = Field(description="Where the files lie; a relative folder lies below TIDEMARK_HOME.")

    @property
    def target(self) -> str:
        return self.folder

    def order(self) -> dict[str, Any]:
        return {}

    def problem_with(self, rows: RowSettings) -> str | None:
        return "may not have a column toy" if "toy" in rows.field_types() else None

    def place_of(self, pipeline_name: str, topic: str, when: datetime | None) -> str:
        return f"{self.folder}/{'rows' if when else 'dead letters'} of {pipeline_name}"

    def folders(self) -> set[str]:
        return set() if is_remote(self.folder) else {self.folder}
