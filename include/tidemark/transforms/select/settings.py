"""``transform: [{select: [..]}]``."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import ValidationInfo

from tidemark.config.values import wrong
from tidemark.transforms.settings import PlainSettings


class Settings(PlainSettings):
    """The columns of the rows from here on, each written as in SQL after SELECT."""

    kind = "select"
    written_as: ClassVar[Mapping[str, Any]] = {
        "type": "array",
        "items": {"type": "string", "minLength": 1},
        "minItems": 1,
        "examples": [["id", "lower(name) AS name", "price * quantity AS total"]],
    }

    columns: tuple[str, ...]

    @classmethod
    def written(cls, value: object, info: ValidationInfo) -> dict[str, Any]:
        del info
        if (
            not isinstance(value, list)
            or not value
            or not all(isinstance(column, str) and column.strip() for column in value)
        ):
            raise wrong("must be a list of columns as in SQL, such as [id, price * quantity AS total]")
        return {"columns": value}
