"""The settings of every transform; an entry of ``transform`` in a pipeline file has one key, its kind."""

from abc import abstractmethod
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, ClassVar

from pydantic import GetJsonSchemaHandler, ValidationInfo, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from tidemark.config.base import OneKind, Section
from tidemark.kinds import TRANSFORMS
from tidemark.model.order import TransformOrder


class TransformSettings(Section):
    """The settings of one transform. ``kind`` is its name in the registry.

    ``whole_partitions``: one task must read all records of a partition in the manifest. ``fans_out``: it may make
    several rows of one.
    """

    kind: ClassVar[str]
    whole_partitions: ClassVar[bool] = False
    fans_out: ClassVar[bool] = False

    @property
    def look_back(self) -> timedelta | None:
        """Return how far before the first record of a range it must have seen the records of the partition, or None."""
        return None

    def options(self, code: Mapping[str, str]) -> dict[str, Any]:
        """Return the options for executors, without any reference to a file of this machine: by default all settings.

        ``code`` has the texts of the pipeline's own modules, by their paths in its folder.
        """
        del code
        return self.model_dump(mode="json")

    def decides_output(self, code: Mapping[str, str]) -> dict[str, Any]:
        """Return the options that decide which rows it makes."""
        return self.options(code)

    def order(self, code: Mapping[str, str]) -> TransformOrder:
        return TransformOrder(self.kind, self.options(code), self.whole_partitions, self.fans_out)


class PlainSettings(TransformSettings):
    """Settings that the pipeline file writes as one value, not as a mapping, such as ``filter: amount > 0``.
    ``written`` checks that value and returns the fields of this class.
    """

    written_as: ClassVar[Mapping[str, Any]]  # as JSON Schema

    @classmethod
    @abstractmethod
    def written(cls, value: object, info: ValidationInfo) -> dict[str, Any]: ...

    @model_validator(mode="before")
    @classmethod
    def _written(cls, value: object, info: ValidationInfo) -> dict[str, Any]:
        return cls.written(value, info)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        del core_schema, handler
        return dict(cls.written_as)


TransformEntry = Annotated[TransformSettings, OneKind(TRANSFORMS)]
