"""``transform: [{sql: ..}]``."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import ValidationInfo

from tidemark.config.base import LoadContext
from tidemark.config.values import wrong
from tidemark.transforms.settings import PlainSettings


class Settings(PlainSettings):
    """A SELECT over the view ``batch``; ``file`` is empty if it is written in the pipeline file itself."""

    kind = "sql"
    written_as: ClassVar[Mapping[str, Any]] = {
        "type": "string",
        "minLength": 1,
        "examples": ["clean.sql", "SELECT * EXCLUDE (note) FROM batch WHERE amount > 0"],
    }

    text: str
    file: str

    @classmethod
    def written(cls, value: object, info: ValidationInfo) -> dict[str, Any]:
        if not isinstance(value, str) or not value.strip():
            raise wrong("must be the name of a file that ends in .sql, or a SELECT .. FROM batch")
        if not value.endswith(".sql"):
            return {"text": value, "file": ""}
        load_context = LoadContext.of(info)
        try:
            return {"text": load_context.text(value), "file": value}
        except OSError as problem:
            raise wrong(
                f"names a file that cannot be read: {load_context.folder / value}: {problem.strerror}"
            ) from None
        except ValueError:
            raise wrong(f"names a file that is not UTF-8 text: {load_context.folder / value}") from None
