"""``code`` of a pipeline file: the folder with the modules of its transforms, read as text."""

import sys
from typing import Annotated, Final

from pydantic import BeforeValidator, ValidationInfo, WithJsonSchema

from tidemark.config.base import LoadContext
from tidemark.config.values import wrong

LARGEST: Final = 2**20  # bytes of all modules: every order contains them
_TAKEN: Final = {*sys.stdlib_module_names, "tidemark", "pyarrow", "duckdb"}


def _read(value: object, info: ValidationInfo) -> dict[str, str]:
    if value is None or isinstance(value, dict):
        return value or {}
    if not isinstance(value, str) or not value.strip():
        raise wrong("must be a folder beside the pipeline file")
    load_context = LoadContext.of(info)
    folder = load_context.folder / value
    try:
        texts = load_context.texts_below(value, ".py")
    except OSError as problem:
        raise wrong(f"names a folder that cannot be read: {folder}: {problem.strerror}") from None
    except ValueError:
        raise wrong(f"names a folder with a module that is not UTF-8 text: {folder}") from None
    if not texts:
        raise wrong(f"names a folder without a module that ends in .py: {folder}")
    if sum(len(text.encode()) for text in texts.values()) > LARGEST:
        raise wrong(f"names a folder with more than {LARGEST:,} bytes of modules: {folder}")
    for file in texts:
        root = file.partition("/")[0].removesuffix(".py")
        if root in _TAKEN:
            raise wrong(
                f"has a module {file}, and {root} is one of Python's own or of Tidemark's: give it another name"
            )
    return texts


# The modules' texts by their paths in the folder.
CodeFolder = Annotated[
    dict[str, str],
    BeforeValidator(_read),
    WithJsonSchema({"anyOf": [{"type": "string", "minLength": 1}, {"type": "null"}], "default": None}),
]
