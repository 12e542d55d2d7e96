"""The keys of a sink whose target is not a folder, and that therefore stages in a folder which many sinks share."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from tidemark.config.base import Root
from tidemark.paths import is_remote, sink_folder
from tidemark.sinks.settings import SinkSettings


class StagingSettings(SinkSettings):
    """The settings of the shared folder, in which each sink has its own folder. Subclasses say which keys open a
    bucket."""

    staging: Root = Field(
        default="staging",
        validate_default=True,
        description="Folder that executors and the publishing process share, or an address such as s3://bucket/prefix; "
        "a relative folder lies below TIDEMARK_HOME.",
        examples=["staging", "s3://bucket/staging"],
    )

    @abstractmethod
    def store_settings(self) -> Mapping[str, Any]:
        """Return the access to a staging folder in a store, without secrets."""

    def own_folder(self, pipeline_name: str) -> str:
        return f"{self.staging}/{sink_folder(pipeline_name, self.name)}"

    def folders(self) -> set[str]:
        return set() if is_remote(self.staging) else {self.staging}
