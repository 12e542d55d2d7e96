"""An Avro schema as a graph: each name is replaced by the type that it stands for, so a recursive type contains itself.

A reader needs the writer's schema to know where each value ends. So only what makes that impossible is refused, such as
an undefined type or an endless recursion. Names, defaults and logical types do no harm in a field that no column needs;
``types.py`` checks the fields that become columns.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tidemark.errors import ConfigurationError

PARTS: Final = {"array": "items", "map": "values"}
PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_NAMED: Final = ("record", "error", "enum", "fixed")


def parsed(text: str, references: Sequence[tuple[str, str]] = ()) -> Any:
    """Parse a schema and the schemas that it refers to.

    Raises ``ConfigurationError`` if the length of its values cannot be known from it.
    """
    graph = _Graph()
    try:
        for _, reference in references:
            graph.of(json.loads(reference), "")
        schema = graph.of(json.loads(text), "")
        _refuse_endless(graph.records)
    except RecursionError:
        raise wrong("is nested too deeply") from None
    except json.JSONDecodeError as problem:
        raise wrong(f"is not JSON: {problem}"[:300]) from None
    except KeyError as problem:
        raise wrong(f'is not valid: one of its types has no "{problem.args[0]}"') from None
    except (TypeError, ValueError, AttributeError):
        raise wrong(
            "is not valid: one of its parts has a wrong JSON type, such as a number in place of a type"
        ) from None
    return schema


def kind_of(schema: Any) -> str:
    """Return ``union``, the name of a primitive, or ``record``, ``enum``, ``fixed``, ``array``, ``map``."""
    if isinstance(schema, list):
        return "union"
    return schema if isinstance(schema, str) else str(schema["type"])


def without_null(schema: Any) -> tuple[Any, bool]:
    """Return (T, True) for a union of null and one T; else the unchanged schema, and whether it can be null."""
    if not isinstance(schema, list):
        return schema, kind_of(schema) == "null"
    others = [branch for branch in schema if kind_of(branch) != "null"]
    return (others[0] if len(others) == 1 else schema), len(others) < len(schema)


def aliases_of(named: Mapping[str, Any]) -> list[str]:
    """Return the aliases of a field or a type."""
    aliases = named.get("aliases")
    return [alias for alias in aliases if isinstance(alias, str)] if isinstance(aliases, list) else []


def parts_of(schema: Any) -> list[Any]:
    """Return the types directly inside a type."""
    match kind_of(schema):
        case "union":
            return list(schema)
        case "record":
            return [field["type"] for field in schema["fields"]]
        case "array" | "map" as kind:
            return [schema[PARTS[kind]]]
        case _:
            return []


def takes_no_bytes(schema: Any, known: dict[int, bool] | None = None) -> bool:
    """Return whether all values of the type are written as zero bytes."""
    known = {} if known is None else known
    match kind_of(schema):
        case "null":
            return True
        case "fixed":
            return bool(schema["size"] == 0)
        case "record":
            if id(schema) not in known:
                known[id(schema)] = all(takes_no_bytes(part, known) for part in parts_of(schema))
            return known[id(schema)]
        case _:
            return False


class _Graph:
    """Reads schemas that may use each other's names."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}
        self._texts: dict[str, Any] = {}
        self.records: list[Any] = []

    def of(self, schema: Any, namespace: str) -> Any:
        if isinstance(schema, list):
            return [self.of(branch, namespace) for branch in schema]
        if isinstance(schema, str):
            return self._by_name(schema, namespace)
        kind = schema["type"]
        if not isinstance(kind, str) or (kind not in PRIMITIVES and kind not in PARTS and kind not in _NAMED):
            return self.of(kind, namespace)  # {"type": {"type": ..}}, or a name
        if kind in PARTS:
            return {**schema, PARTS[kind]: self.of(schema[PARTS[kind]], namespace)}
        return self._of_name(schema, kind, namespace) if kind in _NAMED else schema

    def _by_name(self, name: str, namespace: str) -> Any:
        if name in PRIMITIVES:
            return name
        for full in (f"{namespace}.{name}" if namespace and "." not in name else name, name):
            if full in self._named:
                return self._named[full]
        raise wrong(f"names a type {name[:60]}, which neither it nor its references define")

    def _of_name(self, schema: Mapping[str, Any], kind: str, namespace: str) -> Any:
        """Read a type with a name, which later types may use."""
        name = schema["name"]
        space = name.rpartition(".")[0] if "." in name else schema.get("namespace", namespace) or ""
        full = f"{space}.{name.rpartition('.')[2]}".removeprefix(".")
        if full in self._named:
            if self._texts[full] != schema:
                raise wrong(f"defines {full[:60]} twice, in different ways")
            return self._named[full]
        made: dict[str, Any] = {**schema, "name": full}
        self._named[full], self._texts[full] = made, schema
        match kind:
            case "enum":
                made["symbols"] = [_text(symbol) for symbol in schema["symbols"]]
            case "fixed" if type(schema["size"]) is not int or schema["size"] < 0:
                raise wrong(f"gives {full[:60]} a size of {schema['size']}")
            case "record" | "error":
                made["type"] = "record"
                made["fields"] = [
                    {**field, "name": _text(field["name"]), "type": self.of(field["type"], space)}
                    for field in schema["fields"]
                ]
                self.records.append(made)
        return made


def _text(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"{name!r} is no name")
    return name


def _refuse_endless(records: Sequence[Any]) -> None:
    """Raise ``ConfigurationError`` for a record that always contains another one of its own type: it can have no
    value."""
    ended: set[int] = set()
    for record in records:
        path: list[tuple[Any, Iterator[Any]]] = [(record, iter(parts_of(record)))]
        while path:
            above, parts = path[-1]
            inner = next((part for part in parts if kind_of(part) == "record" and id(part) not in ended), None)
            if inner is None:
                ended.add(id(above))
                path.pop()
            elif any(inner is each for each, _ in path):
                raise wrong(f"is recursive: {inner['name']} contains itself without an end")
            else:
                path.append((inner, iter(parts_of(inner))))


def wrong(what: str) -> ConfigurationError:
    return ConfigurationError(
        f"the Avro schema {what}",
        next_step="correct the schema, or name another one of the rows as decode.schema: fields that it does not name "
        "are skipped; docs/configuration.md lists types",
    )
