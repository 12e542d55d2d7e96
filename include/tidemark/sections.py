"""What every mapping of a pipeline file has in common: strict keys, value types, and where relative paths start."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationInfo, WithJsonSchema
from pydantic_core import InitErrorDetails, ValidationError

from tidemark import notation
from tidemark.notation import wrong


@dataclass(frozen=True)
class Surroundings:
    """Where relative paths of a file start: ``folder`` holds the file itself, ``home`` the lakes."""

    folder: Path
    home: Path

    @classmethod
    def of(cls, info: ValidationInfo) -> "Surroundings":
        return info.context if isinstance(info.context, cls) else cls(Path.cwd(), Path.cwd())


Name = Annotated[
    str,
    AfterValidator(notation.name),
    WithJsonSchema({"type": "string", "pattern": notation.NAME_PATTERN}),
]
Topic = Annotated[str, AfterValidator(notation.topic)]
Duration = Annotated[
    timedelta,
    BeforeValidator(notation.duration),
    WithJsonSchema(
        {"type": "string", "pattern": notation.DURATION_PATTERN, "examples": ["90s", "15m", "1h", "PT1H30M"]}
    ),
]
Size = Annotated[
    int,
    BeforeValidator(notation.size),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": notation.LARGEST},
                {"type": "string", "pattern": notation.SIZE_PATTERN},
            ],
            "examples": [1_048_576, "512MiB", "1GiB"],
        }
    ),
]
Schedule = Annotated[
    str,
    AfterValidator(notation.schedule),
    WithJsonSchema({"type": "string", "examples": [*notation.PRESETS, "*/15 * * * *"]}),
]


class Section(BaseModel):
    """One mapping of the file: an unknown key is an error; ``refused`` (glob: reason) explains the tempting ones."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    refused: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def why_refused(cls, key: str) -> str | None:
        return next((reason for pattern, reason in cls.refused.items() if fnmatchcase(key, pattern)), None)


def wrong_at(key: str | int | tuple[str | int, ...], message: str) -> ValidationError:
    """The problem of one entry, found while looking at the whole; a tuple of keys names one further down."""
    place = key if isinstance(key, tuple) else (key,)
    return ValidationError.from_exception_data("", [InitErrorDetails(type=wrong(message), loc=place, input=None)])
