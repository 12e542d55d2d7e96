"""``source: {toy: {folder: .., topics: ..}}``."""

import os

from pydantic import Field, ValidationInfo, field_validator

from tidemark.config.base import LoadContext
from tidemark.sources.settings import PatternSettings


class Settings(PatternSettings):
    """Topics in one folder."""

    kind = "toy"

    folder: str = Field(description="Where the topics lie; a relative folder lies below TIDEMARK_HOME.")

    @field_validator("folder")
    @classmethod
    def _absolute(cls, folder: str, info: ValidationInfo) -> str:
        return os.path.normpath(LoadContext.of(info).home / folder)

    def connections(self) -> set[str]:
        return set()
