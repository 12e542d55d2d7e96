"""Has the keys of a sink that stages in a folder which many sinks share, since its target is no folder itself."""

import os
from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from tidemark.config import values
from tidemark.config.base import LoadContext
from tidemark.paths import sink_folder
from tidemark.sinks.settings import SinkSettings
from tidemark.storage.base import is_s3


class StagingSettings(SinkSettings):
    """The folder is one for all sinks; in it each has one of its own. The kind says whose keys open a bucket."""

    staging: Annotated[str, AfterValidator(values.root)] = Field(
        default="staging",
        validate_default=True,
        description="Folder that executors and the publishing process share, or s3://bucket/prefix; a relative folder "
        "lies below TIDEMARK_HOME. Dead letters stay there when the target has no place for them.",
        examples=["staging", "s3://bucket/staging"],
    )

    @field_validator("staging")
    @classmethod
    def _absolute(cls, staging: str, info: ValidationInfo) -> str:
        return staging if is_s3(staging) else os.path.normpath(LoadContext.of(info).home / staging)

    @abstractmethod
    def store_settings(self) -> Mapping[str, Any]:
        """Access to a staging folder in ``s3://``, without secrets."""

    def own_folder(self, pipeline_name: str) -> str:
        return f"{self.staging}/{sink_folder(pipeline_name, self.name)}"

    def folders(self) -> set[str]:
        return set() if is_s3(self.staging) else {self.staging}
