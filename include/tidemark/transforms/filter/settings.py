"""``transform: [{filter: ..}]``."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import ValidationInfo

from tidemark.config.values import wrong
from tidemark.transforms.settings import PlainSettings


class Settings(PlainSettings):
    """Rows stay if a condition in SQL is true for them."""

    kind = "filter"
    written_as: ClassVar[Mapping[str, Any]] = {
        "type": "string",
        "minLength": 1,
        "examples": ["amount > 0 AND country <> 'XX'"],
    }

    condition: str

    @classmethod
    def written(cls, value: object, info: ValidationInfo) -> dict[str, Any]:
        del info
        if not isinstance(value, str) or not value.strip():
            raise wrong("must be a condition in SQL, such as amount > 0")
        return {"condition": value}
