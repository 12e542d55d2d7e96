"""``sinks: [{toy: {folder: ..}}]``."""

import os
from datetime import datetime
from typing import Any

from pydantic import Field, ValidationInfo, field_validator

from tidemark.config.base import LoadContext, Name
from tidemark.decoders.settings import RowSettings
from tidemark.sinks.settings import SinkSettings


class Settings(SinkSettings):
    """JSON files in one folder."""

    kind = "toy"

    name: Name = Field(default="toy", description="Name of this sink, unique in the pipeline.")
    folder: str = Field(description="Where the files lie; a relative folder lies below TIDEMARK_HOME.")

    @field_validator("folder")
    @classmethod
    def _absolute(cls, folder: str, info: ValidationInfo) -> str:
        return os.path.normpath(LoadContext.of(info).home / folder)

    @property
    def target(self) -> str:
        return self.folder

    def order(self) -> dict[str, Any]:
        return {"folder": self.folder}

    def problem_with(self, rows: RowSettings) -> str | None:
        return "may not have a column toy" if "toy" in rows.field_types() else ""

    def place_of(self, pipeline_name: str, topic: str, when: datetime | None) -> str:
        return f"{self.folder}/{'rows' if when else 'dead letters'} of {pipeline_name}"

    def folders(self) -> set[str]:
        return {self.folder}
