"""The base of all mappings of a pipeline file: strict keys, types of values, and the folders of relative paths."""

import json
import os
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from errno import ENOTDIR
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    ValidationInfo,
    WithJsonSchema,
    create_model,
)
from pydantic_core import InitErrorDetails, ValidationError, core_schema

from tidemark.config import values
from tidemark.config.values import wrong
from tidemark.kinds import KINDS, PROVIDERS, Kinds
from tidemark.model.reasons import SHARE_PATTERN
from tidemark.paths import is_remote
from tidemark.text import with_nearest


@dataclass(frozen=True)
class LoadContext:
    """The folders from which relative paths of a file start: ``folder`` has the file itself, ``home`` the lakes.

    ``named`` has the texts of the files that the file names, by these names, as far as they have been read.
    """

    folder: Path
    home: Path
    named: dict[str, str] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """Return the text of a file that the file names. Raises ``OSError``, and ``ValueError`` if it is not UTF-8."""
        if name not in self.named:
            self.named[name] = (self.folder / name).read_text(encoding="utf-8")
        return self.named[name]

    def texts_below(self, folder: str, suffix: str) -> dict[str, str]:
        """Return the texts of all files below a folder with this ``suffix``, by their paths in it. Raises as ``text``
        does.
        """
        listed = f"{folder}/**{suffix}"
        if listed not in self.named:
            top = self.folder / folder
            if not top.is_dir():
                raise NotADirectoryError(ENOTDIR, "it is no folder")
            files = sorted(path.relative_to(top).as_posix() for path in top.rglob(f"*{suffix}") if path.is_file())
            self.named[listed] = json.dumps(files)
        return {file: self.text(f"{folder}/{file}") for file in json.loads(self.named[listed])}

    def content(self, name: str) -> bytes:
        """Return the bytes of a file that the file names; ``named`` has them as base64. Raises ``OSError``."""
        if name not in self.named:
            self.named[name] = b64encode((self.folder / name).read_bytes()).decode()
        return b64decode(self.named[name])

    @classmethod
    def of(cls, info: ValidationInfo) -> "LoadContext":
        return info.context if isinstance(info.context, cls) else cls(Path.cwd(), Path.cwd())


def json_of_file(name: str, info: ValidationInfo) -> Any:
    """Return the content of a JSON file that a setting names."""
    load_context = LoadContext.of(info)
    path = load_context.folder / name
    try:
        return json.loads(load_context.text(name))
    except OSError as problem:
        raise wrong(f"names a file that cannot be read: {path}: {problem.strerror}") from None
    except RecursionError:
        raise wrong(f"names a file that is nested too deeply: {path}") from None
    except ValueError as problem:
        raise wrong(f"names a file that is not JSON: {path}: {problem}") from None


def _absolute(root: str, info: ValidationInfo) -> str:
    return root if is_remote(root) else os.path.normpath(LoadContext.of(info).home / root)


Name = Annotated[
    str,
    AfterValidator(values.name),
    WithJsonSchema({"type": "string", "pattern": values.NAME_PATTERN}),
]
Root = Annotated[str, AfterValidator(values.root), AfterValidator(_absolute)]  # a folder or a bucket with its prefix
Topic = Annotated[str, AfterValidator(values.topic)]
Pattern = Annotated[str, AfterValidator(values.pattern)]
Duration = Annotated[
    timedelta,
    BeforeValidator(values.duration),
    WithJsonSchema({"type": "string", "pattern": values.DURATION_PATTERN, "examples": ["90s", "15m", "1h", "PT1H30M"]}),
]
Size = Annotated[
    int,
    BeforeValidator(values.size),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": values.LARGEST},
                {"type": "string", "pattern": values.SIZE_PATTERN},
            ],
            "examples": [1_048_576, "512MiB", "1GiB"],
        }
    ),
]
DeadLetters = Annotated[
    int | str,
    BeforeValidator(values.dead_letters),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": SHARE_PATTERN}],
            "examples": [100, "0.1%", "1%"],
        }
    ),
]
Schedule = Annotated[
    str,
    AfterValidator(values.schedule),
    WithJsonSchema({"type": "string", "examples": [*values.PRESETS, "*/15 * * * *"]}),
]


class Section(BaseModel):
    """One mapping of the file. An unknown key is an error; ``refused`` (glob of keys: reason) may explain it."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    refused: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def problem_with_key(cls, key: str) -> str | None:
        return next((reason for pattern, reason in cls.refused.items() if fnmatchcase(key, pattern)), None)


@dataclass(frozen=True)
class OneKind:
    """Annotation of a value that is written as exactly one key, its kind, with the settings of that kind below it.

    The module ``settings`` of each kind has the model ``Settings``. ``kinds`` is read whenever a file is read, so a
    kind that was registered later is known. With ``alone``, the name of the kind may stand alone, for the kind with its
    defaults. ``removed`` has kinds of former releases, and what to write in their place.
    """

    kinds: Kinds
    alone: bool = False
    removed: Mapping[str, str] = field(default_factory=dict)

    def section(self) -> type[Section]:
        """Return the model of the entry: a mapping of kinds to their settings."""
        return _entry(self.kinds.seam, tuple(self.kinds.items()))

    def _settings(self, value: object, info: ValidationInfo) -> object:
        if isinstance(value, Section):
            return value
        if self.alone and isinstance(value, str) and value in self.kinds:
            value = {value: {}}
        if not value or not isinstance(value, Mapping):
            allowed = ", ".join(self.kinds)
            one_key = f"must hold one key, the kind of the {self.kinds.word}, with its settings below"
            raise wrong(f"{one_key}; allowed: {allowed}")
        section = self.section()  # leaves out kinds that cannot be used
        kinds = [key for key in value if key in self.kinds]
        if len(kinds) > 1:
            raise wrong_at(kinds[1], f"is a second kind beside {kinds[0]}: one {self.kinds.word} is of one kind")
        for key in value:
            if problem := self._problem_with(key):
                raise wrong_at(key, problem)
        entry = section.model_validate(value, context=info.context)  # refuses a mapping without any kind
        return getattr(entry, kinds[0])

    def _problem_with(self, key: str) -> str | None:
        """Return why a key cannot be used: it is or was the name of a kind, or may belong to a package that cannot be
        used.
        """
        if key in self.removed:
            return f"is not allowed: {self.removed[key]}"
        if key in self.kinds:
            return self.kinds.problem_with(key)
        if key in self.kinds.left_out:
            return f"cannot be used: {self.kinds.left_out[key]}; tidemark doctor names the package"
        if not PROVIDERS.broken:
            return None
        broken = "; ".join(f"{distribution}: {reason}" for distribution, reason in PROVIDERS.broken.items())
        what = f"is no {self.kinds.word} that is installed; packages that cannot be used: {broken}"
        return with_nearest(what, key, self.kinds)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        written = handler.generate_schema(self.section())
        if self.alone:
            written = core_schema.union_schema([core_schema.literal_schema([*self.kinds]), written])
        return core_schema.with_info_before_validator_function(
            self._settings, handler(source), json_schema_input_schema=written
        )


@cache
def _entry(seam: str, now: tuple[tuple[str, str], ...]) -> type[Section]:
    """Return the model of an entry. ``now`` has the present kinds: when they change, another model is made."""
    del now
    kinds = KINDS[seam]
    models = settings_of_kinds(kinds, Section)
    fields: dict[str, Any] = {kind: (model, Field(default=None)) for kind, model in models.items()}
    entry: type[Section] = create_model(f"{kinds.word.title()}Entry", __base__=Section, **fields)
    entry.__doc__ = f"One {kinds.word}: exactly one key, its kind."
    entry.model_config["json_schema_extra"] = {"minProperties": 1, "maxProperties": 1}
    return entry


def settings_of_kinds(kinds: Kinds, base: type[Section]) -> dict[str, type[Any]]:
    """Return the model ``Settings`` of each kind. A kind of an installed package without this model is left out."""
    models = {}
    for kind, module in kinds.modules("settings").items():
        model = getattr(module, "Settings", None)
        if isinstance(model, type) and issubclass(model, base):
            models[kind] = model
        else:
            kinds.leave_out(kind, f"{module.__name__}.Settings is no {base.__name__}")
    return models


def wrong_at(key: str | int | tuple[str | int, ...], message: str) -> ValidationError:
    """Return the problem of one entry, to be raised by a check of the mapping above it. A tuple is the path of a deeper
    entry.
    """
    path = key if isinstance(key, tuple) else (key,)
    return ValidationError.from_exception_data("", [InitErrorDetails(type=wrong(message), loc=path, input=None)])
