"""Checks a statement of SQL over the rows of a batch: each result row must come from one row, and from that row alone.

A batch ends where it happens to be full. So a statement with an aggregate, a window, DISTINCT, ORDER BY, LIMIT, a join
or a subquery would give other results for other bounds. It is refused, and so are functions that are not known to give
the same result in a replay (``functions``). DuckDB parses the statement, and the parsed form is checked: nothing here
reads SQL as text.
"""

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import duckdb
import pyarrow as pa

from tidemark.errors import ConfigurationError
from tidemark.text import with_nearest
from tidemark.transforms.functions import AGGREGATES, ALLOWED, OVER_LISTS, is_allowed

VIEW: Final = "batch"
ORDINAL: Final = "_ordinal"  # the number of a row in its batch
METADATA: Final = (
    "_topic",
    "_partition",
    "_offset",
    "_timestamp",
    "_key",
    "_is_deleted",
)  # columns that a statement may read
MEMORY: Final = "512MB"

_EXPRESSIONS: Final = {
    "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "FUNCTION", "LAMBDA",
    "LAMBDA_REF", "OPERATOR", "BETWEEN", "TYPE",
}  # fmt: skip
_REFUSED: Final = {
    "SUBQUERY": "a subquery",
    "WINDOW": "a window function",
    "PARAMETER": "a parameter",
    "STAR": "a star inside an expression",
    "POSITIONAL_REFERENCE": "a column by its number",
    "DEFAULT": "DEFAULT",
}
_MODIFIERS: Final = {"DISTINCT_MODIFIER": "DISTINCT", "ORDER_MODIFIER": "ORDER BY", "LIMIT_MODIFIER": "LIMIT"}
_KEYWORD: Final = "LAMBDA_KEYWORD"
_CLOCKS: Final = {"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"}
_UNSTABLE: Final = "gives another result each time, so a replay would make other rows"
_STABLE: Final = "use a value of the record, such as _timestamp"
_FACTS: Final[dict[str, list[tuple[Any, ...]]]] = {}  # of functions, by name
_ROWWISE: Final = "each row must come from one record alone, because batches end anywhere"


@dataclass(frozen=True)
class OutputColumn:
    """A column of the result: the given column ``source`` unchanged, or a computed one if ``source`` is None."""

    name: str
    source: str | None
    never_null: bool = False


@dataclass(frozen=True)
class Statement:
    """A checked statement. ``text`` returns the ordinals of the rows that stay, and the computed columns in the order
    of ``outputs``.
    """

    outputs: tuple[OutputColumn, ...]
    text: str

    @property
    def computed(self) -> list[OutputColumn]:
        return [output for output in self.outputs if output.source is None]


def connect() -> duckdb.DuckDBPyConnection:
    """Return a connection to this process's database for statements that keep nothing.

    The views that it registers are its own. To open a database takes 20 ms, and a small task little more.
    """
    return _database(os.getpid()).cursor()


@cache
def _database(_pid: int) -> duckdb.DuckDBPyConnection:
    """A fork opens its own: it may not use that of its parent."""
    return open_database()


def open_database() -> duckdb.DuckDBPyConnection:
    """Open a database in memory with one thread, which opens no file and no address."""
    settings: dict[str, str | bool | int | float | list[str]] = {
        "threads": 1,
        "memory_limit": MEMORY,
        "temp_directory": "",
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    connection = duckdb.connect(":memory:", config=settings)
    # For all its connections: SET alone would be of this one.
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    connection.execute("SET GLOBAL python_enable_replacements = false")
    # Otherwise Arrow evaluates comparisons, not DuckDB.
    connection.execute("SET GLOBAL disabled_optimizers = 'filter_pushdown'")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def prepared(connection: duckdb.DuckDBPyConnection, text: str, given: pa.Schema) -> Statement:
    """Check a statement over ``batch`` with these data columns. Raises ``ConfigurationError`` for what it may not
    contain.
    """
    folded = [name.lower() for name in given.names]
    for name in given.names:
        if folded.count(name.lower()) > 1:
            raise _refused(f"the columns differ by capitals only ({name}), which SQL does not tell apart")
    return _Reading(connection, given).statement(text)


def _refused(what: str, next_step: str = "") -> ConfigurationError:
    return ConfigurationError(what, next_step=next_step or "write SELECT .. FROM batch WHERE .., see configuration.md")


def _not_allowed(function: str, shown: str) -> ConfigurationError:
    return _refused(
        f"{shown} is not among the functions that are known to give the same result in every replay",
        f"write it with other functions, or as a Python function; if the result of {function}() depends on its "
        "arguments alone, ask the authors of Tidemark to allow it",
    )


class _Reading:
    """The check of one statement."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, given: pa.Schema) -> None:
        self._connection = connection
        self._given = given
        self._names = {name.lower(): name for name in given.names}

    def statement(self, text: str) -> Statement:
        node = self._parsed(text)
        self._check_shape(node)
        items = [item for part in node["select_list"] for item in self._items(part)]
        outputs = tuple(output for output, _ in items)
        names = [output.name.lower() for output in outputs]
        for output in outputs:
            if output.name.startswith("_"):
                raise _refused(
                    f"column {output.name}: names that begin with _ belong to Tidemark",
                    f"give it another name: {output.name} AS {output.name.lstrip('_') or 'name'}",
                )
            if names.count(output.name.lower()) > 1:
                raise _refused(f"two columns have the name {output.name}", "give each column a name of its own")
        if not outputs:
            raise _refused("it leaves no column")
        condition = node["where_clause"]
        computed = [{**part, "alias": f"c{at}"} for at, part in enumerate(part for _, part in items if part)]
        for part in computed + ([condition] if condition else []):
            self._check(part)
        template = self._parsed("SELECT _ordinal FROM batch WHERE _is_deleted OR true")
        template["select_list"] += computed
        template["where_clause"]["children"][1] = condition or template["where_clause"]["children"][1]
        return Statement(outputs, self._written(template))

    def _parsed(self, text: str) -> dict[str, Any]:
        [[written]] = self._connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [text]).fetchall()
        parsed = json.loads(written)
        if parsed["error"]:
            raise _refused(f"it is not a SELECT that DuckDB understands: {parsed['error_message']}")
        if len(parsed["statements"]) != 1:
            raise _refused(f"it holds {len(parsed['statements'])} statements", "write one SELECT")
        node: dict[str, Any] = parsed["statements"][0]["node"]
        return node

    def _written(self, node: Mapping[str, Any]) -> str:
        tree = {"error": False, "statements": [{"node": node, "named_param_map": []}]}
        [[text]] = self._connection.execute("SELECT json_deserialize_sql(?::JSON)", [json.dumps(tree)]).fetchall()
        return str(text)

    def _check_shape(self, node: Mapping[str, Any]) -> None:
        if node["type"] != "SELECT_NODE":
            raise _refused(f"it joins several SELECTs (UNION and the like); {_ROWWISE}")
        for modifier in node["modifiers"]:
            raise _refused(f"it has {_MODIFIERS.get(modifier['type'], modifier['type'])}; {_ROWWISE}")
        for key, what in (("group_expressions", "GROUP BY"), ("having", "HAVING"), ("qualify", "QUALIFY"),
                          ("sample", "USING SAMPLE"), ("group_sets", "GROUP BY")):  # fmt: skip
            if node[key]:
                raise _refused(f"it has {what}; {_ROWWISE}")
        if node["aggregate_handling"] != "STANDARD_HANDLING":
            raise _refused(f"it has GROUP BY; {_ROWWISE}")
        if node["cte_map"]["map"]:
            raise _refused(f"it has WITH; {_ROWWISE}")
        table = node["from_table"]
        plain = (
            table["type"] == "BASE_TABLE"
            and table["table_name"].lower() == VIEW
            and not any(table.get(key) for key in ("schema_name", "catalog_name", "sample", "at_clause"))
            and not table.get("column_name_alias")
            and table["alias"].lower() in ("", VIEW)
        )
        if not plain:
            raise _refused(f"it must read FROM {VIEW} and from nothing else: no file, no other table, no join")

    def _items(self, part: dict[str, Any]) -> Iterator[tuple[OutputColumn, dict[str, Any] | None]]:
        """Yield the columns for one entry of the list after SELECT, each with its expression if it is computed."""
        if part["class"] == "STAR":
            yield from self._stars(part)
            return
        source = self._column(part)
        if source is not None:
            yield OutputColumn(part["alias"] or source, source), None
            return
        unnamed = part["column_names"][-1] if part["class"] == "COLUMN_REF" else ""
        name = part["alias"] or unnamed
        if not name:
            raise _refused("a computed column has no name", "give it one: .. AS name")
        yield OutputColumn(name, None, self._is_never_null(part)), part

    def _stars(self, part: dict[str, Any]) -> Iterator[tuple[OutputColumn, dict[str, Any] | None]]:
        if part["columns"] or part["expr"] or part.get("qualified_exclude_list"):
            raise _refused("COLUMNS(..) is not known here", "name the columns")
        excluded = {name.lower() for name in part["exclude_list"]}
        replaced = {entry["key"].lower(): entry["value"] for entry in part["replace_list"]}
        renamed = {entry["key"]["column"].lower(): entry["value"] for entry in part.get("rename_list", [])}
        for name in (*excluded, *replaced, *renamed):
            self._known(name)
        for name in self._given.names:
            key = name.lower()
            if key in replaced:
                yield OutputColumn(name, None, self._is_never_null(replaced[key])), replaced[key]
            elif key not in excluded:
                yield OutputColumn(renamed.get(key, name), name), None

    def _column(self, part: Mapping[str, Any]) -> str | None:
        """Return the given data column that an expression names unchanged, or None."""
        if part["class"] != "COLUMN_REF":
            return None
        words = [word.lower() for word in part["column_names"]]
        if len(words) == 2 and words[0] == VIEW:
            words = words[1:]
        return self._names.get(words[0]) if len(words) == 1 else None

    def _is_never_null(self, part: Mapping[str, Any]) -> bool:
        """Return whether it is a COALESCE with a part that is a constant, or a column without nulls."""
        if part.get("type") != "OPERATOR_COALESCE":
            return False
        columns = [self._column(child) for child in part["children"]]
        return any(name is not None and not self._given.field(name).nullable for name in columns) or any(
            child["class"] == "CONSTANT" and child.get("literal", {}).get("kind") not in (None, "NULL_LITERAL")
            for child in part["children"]
        )

    def _known(self, name: str, next_step: str = "name one of these columns") -> None:
        if name.lower() not in {*self._names, *METADATA}:
            raise _refused(
                with_nearest(f"there is no column {name}", name, [*self._given.names, *METADATA], listed=True),
                next_step,
            )

    def _check(self, expression: Mapping[str, Any], variables: frozenset[str] = frozenset()) -> None:
        """Refuse what is not allowed in an expression; ``variables`` are those of the lambdas around it."""
        kind = expression.get("class")
        if kind is not None and kind not in _EXPRESSIONS:
            raise _refused(f"it has {_REFUSED.get(kind, kind)}; {_ROWWISE}")
        if kind == "LAMBDA":
            variables |= self._variables(expression, variables)
        if kind == "COLUMN_REF":
            self._check_column([word.lower() for word in expression["column_names"]], variables)
        if kind == "FUNCTION":
            self._check_function(expression)
        for value in expression.values():
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, dict):
                    self._check(child, variables)

    def _variables(self, arrow: Mapping[str, Any], around: frozenset[str]) -> frozenset[str]:
        """Return the variables that a lambda declares. Only the keyword marks a lambda: DuckDB parses ``a -> b`` in the
        same way, and reads it as JSON or as an old lambda. Before version 2 it does not tell the two apart. So the left
        side of ``->`` is checked as any expression.
        """
        arguments = arrow["lhs"]
        names = [part["column_names"][0] for part in _within(arguments) if part.get("column_names")]
        if arrow.get("syntax_type") == _KEYWORD:
            return frozenset(name.lower() for name in names)
        if arguments["class"] == "COLUMN_REF" or arguments.get("function_name") == "row":  # x -> .., (x, y) -> ..
            for name in names:
                if name.lower() not in {VIEW, *_CLOCKS, *around}:
                    self._known(name, f"name one of these columns; a lambda is written lambda {name}: .. (DuckDB 2)")
        return frozenset()

    def _check_column(self, words: Sequence[str], variables: frozenset[str]) -> None:
        if words[0] in variables or (words[0] == VIEW and len(words) > 1):
            words = words[1:] if words[0] == VIEW else ()
        if not words or words[0] in {*self._names, *METADATA}:
            return
        if words[0] in _CLOCKS:
            raise _refused(f"{words[0]} {_UNSTABLE}", _STABLE)
        self._known(words[0])

    def _check_function(self, function: Mapping[str, Any], of: str = "") -> None:
        """Refuse a function that is not allowed; ``of`` is the macro whose definition calls it."""
        name, arguments = function["function_name"].lower(), _arguments(function)
        if before := function.get("schema") or function.get("catalog"):  # x.age() is age(x), and looks like a function
            raise _refused(f"{before}.{name}() names a column or a schema before a function", f"write {name}(..)")
        shown = f"{name}()" + (f" (by way of {of}())" if of else "")
        facts = self._facts(name)
        kinds = {kind for kind, *_ in facts}
        if not facts:
            raise _refused(f"there is no function {shown}")
        if kinds & {"aggregate", "window"}:
            raise _refused(f"{shown} works on several rows; {_ROWWISE}")
        if "scalar" in kinds:
            changes = any(stability != "CONSISTENT" for kind, stability, *_ in facts if kind == "scalar")
            self._check_scalar(name, shown, arguments, changes=changes or name.startswith("current_"))
        elif "macro" in kinds and name != of:
            for _, _, parameters, definition in facts:
                if not parameters:  # such as user(): its result does not depend on a record
                    raise _not_allowed(name, shown)
                for part in _within(self._parsed(f"SELECT {definition}")):
                    self._check_in_macro(part, name, {parameter.lower() for parameter in parameters})
        else:
            raise _refused(f"{shown} gives several rows, or a table; {_ROWWISE}")

    def _facts(self, name: str) -> list[tuple[Any, ...]]:
        """Return kind, stability, parameters and definition of each function with this name. Each database has the
        same functions, so DuckDB lists them once for a process: it takes 15 ms.
        """
        if name not in _FACTS:
            _FACTS[name] = self._connection.execute(
                "SELECT DISTINCT function_type, stability, parameters, macro_definition FROM duckdb_functions() "
                "WHERE lower(function_name) = ?",
                [name],
            ).fetchall()
        return _FACTS[name]

    def _check_scalar(self, name: str, shown: str, arguments: Sequence[Any], *, changes: bool) -> None:
        """Refuse a scalar function that is not allowed. ``changes``: its result is known to change, and the error says
        so.
        """
        if name in OVER_LISTS:
            aggregate = _text(arguments[1]) if len(arguments) > 1 else ""
            if aggregate not in AGGREGATES:
                raise _refused(
                    f"{shown} names no aggregate that is known to give the same result in every replay",
                    f"name one of: {', '.join(sorted(AGGREGATES))}",
                )
        elif (changes and name not in ALLOWED) or (name == "age" and len(arguments) == 1):
            raise _refused(f"{shown} {_UNSTABLE}", _STABLE)
        elif not is_allowed(name):
            raise _not_allowed(name, shown)

    def _check_in_macro(self, part: Mapping[str, Any], macro: str, parameters: Collection[str]) -> None:
        kind = part.get("class")
        if kind is not None and kind not in _EXPRESSIONS:
            raise _refused(f"{macro}() holds {_REFUSED.get(kind, kind)}; {_ROWWISE}")
        if kind == "COLUMN_REF" and part["column_names"][0].lower() not in parameters:
            raise _refused(f"{macro}() {_UNSTABLE}", _STABLE)
        if kind == "FUNCTION":
            self._check_function(part, macro)


def _text(argument: Mapping[str, Any]) -> str:
    """Return the text of an unnamed constant argument, in lower case; empty for anything else."""
    expression = argument.get("expression", argument)  # DuckDB 2 writes arguments with their names, and literals
    if argument.get("name") or expression.get("class") != "CONSTANT":
        return ""
    constant = expression.get("literal") or expression.get("value") or {}
    return str(constant.get("text") or constant.get("value") or "").lower()


def _arguments(function: Mapping[str, Any]) -> list[Any]:
    arguments: list[Any] = function["arguments"] if "arguments" in function else function["children"]
    return arguments


def _within(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a mapping of a parsed statement and all mappings below it."""
    yield node
    for value in node.values():
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, dict):
                yield from _within(child)
