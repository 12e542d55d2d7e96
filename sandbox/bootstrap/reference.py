"""Writes type, default and meaning of each key into the tables of docs: `make reference`.

The settings classes are their only source; they also make the JSON Schema for editors. The page decides which table has
a key, and in which order.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tidemark.pipeline.settings import json_schema

DOCS: Final = Path(__file__).parents[2] / "docs"
PAGES: Final = (DOCS / "configuration.md", DOCS / "providers" / "postgres.md")
_ROW: Final = re.compile(r"^\| `([^`]+)` \| ([^|]+) \| ([^|]+) \| (.*) \|$", re.MULTILINE)
_FORMATS: Final = {"date": "day", "date-time": "time"}
_NULL: Final = {"type": "null"}
_FOLLOWS: Final = {"event_time.on_invalid": "as `on_error`"}  # keys whose default is the value of another key

Node = Mapping[str, Any]


def keys_of(schema: Node, node: Node, prefix: str) -> dict[str, Node]:
    """Return every key that a file may have, by its full path: ``source.kafka.slice.max_records``.

    A key that several kinds of a choice describe differently, such as ``decode.schema``, has no description.
    """
    keys: dict[str, Node] = {}
    parts = [node, *node.get("anyOf", []), *node.get("oneOf", [])]
    parts += [node["items"]] if "items" in node else []
    for part in parts:
        target = _resolved(schema, part)
        if target is not node and ("$ref" not in part or "anyOf" in target):
            _add(keys, keys_of(schema, target, prefix))
        for key, below in target.get("properties", {}).items() if target is not node or prefix == "" else ():
            _add(keys, {f"{prefix}{key}": below} | keys_of(schema, below, f"{prefix}{key}."))
    return keys


def _add(keys: dict[str, Node], others: Mapping[str, Node]) -> None:
    for key, node in others.items():
        if keys.get(key, node).get("description") != node.get("description"):
            keys[key] = {name: value for name, value in node.items() if name != "description"}
        else:
            keys[key] = node


def _resolved(schema: Node, node: Node) -> Node:
    target: Node = schema["$defs"][node["$ref"].rsplit("/", 1)[1]] if "$ref" in node else node
    return target


def type_words(schema: Node, node: Node) -> str:
    """Return the type of a key in the words of the page, such as ``count, 1 to 100``."""
    words = list(dict.fromkeys(_types(schema, node)))
    if all(word.startswith("`") for word in words):
        return ", ".join(words)
    return ", or ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


def _types(schema: Node, node: Node) -> Iterator[str]:
    part = _resolved(schema, node)
    several = [each for each in [*part.get("anyOf", []), *part.get("oneOf", [])] if each != _NULL]
    if several:
        sizes = [each for each in several if "pattern" in each]
        if sizes and "GiB" in sizes[0]["pattern"]:
            yield "size"
        elif sizes and sizes[0]["pattern"].endswith("%$"):
            yield "number, or share such as `0.1%`"
        else:
            for each in several:
                yield from _types(schema, each)
    elif "enum" in part:
        yield from (f"`{word}`" for word in part["enum"])
    elif "const" in part:
        yield f"`{json.dumps(part['const']).strip(chr(34))}`"
    else:
        yield _simple(part)


def _simple(part: Node) -> str:
    match part.get("type"):
        case "boolean":
            return "true, false"
        case "integer":
            return _whole_number(part)
        case "array":
            return "list"
        case "string" if "format" in part:
            return _FORMATS[part["format"]]
        case "string" if "smhd" in part.get("pattern", ""):
            return "duration"
        case "string":
            return "name" if "pattern" in part else "text"
        case _:
            return "mapping"


def _whole_number(part: Node) -> str:
    lowest, highest = part.get("minimum"), part.get("maximum")
    if lowest is None or lowest < 0:
        return "whole number"
    return f"count, {lowest} to {highest:,}" if highest and highest < 10**9 else "count"


def _shown(default: object) -> str:
    return default if isinstance(default, str) and default else json.dumps(default)


def written(page: str, schema: Node) -> str:
    """Return the page with its tables of keys filled from the settings. A key that the classes do not describe (the
    kinds of a choice) keeps its row.
    """
    keys = keys_of(schema, schema, "")

    def row(match: re.Match[str]) -> str:
        key = match[1]
        node = keys.get(key)
        if node is None or "description" not in node:
            return match[0]
        default = f"`{_shown(node['default'])}`" if "default" in node else "required"
        default = _FOLLOWS.get(key, default)
        return f"| `{key}` | {type_words(schema, node)} | {default} | {node['description']} |"

    return _ROW.sub(row, page)


def main() -> None:
    for page in PAGES:
        page.write_text(written(page.read_text(), json_schema(links=True)))


if __name__ == "__main__":
    main()
