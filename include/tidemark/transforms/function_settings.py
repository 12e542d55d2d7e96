"""The settings of transforms that call a function of the pipeline's ``code`` folder."""

import ast
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from tidemark.config.values import wrong
from tidemark.errors import ConfigurationError
from tidemark.transforms.settings import TransformSettings


def _function(value: str) -> str:
    module, _, name = value.partition(":")
    if not name.isidentifier() or not all(word.isidentifier() for word in module.split(".")):
        raise wrong("must be a function of the code folder such as prices:add_tax")
    return value


NameOfFunction = Annotated[str, AfterValidator(_function)]  # module:function


class FunctionSettings(TransformSettings):
    """A function of the ``code`` folder, and the columns that it returns."""

    function: NameOfFunction
    columns: dict[str, str] | None = Field(
        default=None,
        description="The columns that the function returns, with their types in SQL (`BIGINT NOT NULL`), when names "
        "or types change.",
        examples=[{"id": "BIGINT NOT NULL", "total": "DECIMAL(18, 2)"}],
    )

    @model_validator(mode="before")
    @classmethod
    def _function_alone(cls, value: object) -> object:
        return {"function": value} if isinstance(value, str) else value

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"type": "string", "examples": ["prices:add_tax"]}, handler(core_schema)]}

    def options(self, code: Mapping[str, str]) -> dict[str, Any]:
        """Return the options for executors. Raises ``ConfigurationError`` if the code does not parse, or lacks the
        function; no code runs.
        """
        module, _, name = self.function.partition(":")
        path = module.replace(".", "/")
        file = next((file for file in (f"{path}.py", f"{path}/__init__.py") if file in code), None)
        if file is None:
            known = f"it has {', '.join(sorted(code))}" if code else "there is no such folder, or it has no .py file"
            raise ConfigurationError(f"the code folder has no module {module}; {known}")
        trees = {each: _parsed(each, text) for each, text in code.items()}
        if name not in _names(trees[file]):
            raise ConfigurationError(f"{file} defines no {name}")
        return {"function": self.function, "columns": self.columns, "code": dict(code)}


def _parsed(file: str, text: str) -> ast.Module:
    try:
        return ast.parse(text, file)
    except (SyntaxError, ValueError) as problem:
        line = getattr(problem, "lineno", None)
        raise ConfigurationError(f"{file}:{line or 1} is not Python: {problem.args[0]}") from None


def _names(module: ast.Module) -> set[str]:
    """Return the names that a module defines or imports at its top level."""
    names: set[str] = set()
    for node in module.body:
        match node:
            case ast.FunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Import() | ast.ImportFrom():
                names |= {alias.asname or alias.name for alias in node.names}
            case ast.Assign():
                names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names
