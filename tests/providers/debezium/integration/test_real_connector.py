"""A real Debezium: each type of PostgreSQL in each form of records, and a copied table beside its source.

docs/debezium-types.md has what each value becomes; the test compares it.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from sandbox.bootstrap.checkout import CHECKOUT
from sandbox.services.broker import Broker
from sandbox.services.registry import SchemaRegistry
from tests.worlds.copied_table import READERS, CopiedTable, decode_of, registry_of, sinks
from tests.worlds.iceberg_world import IcebergWorld
from tests.worlds.source_of_changes import FORMS, SourceOfChanges, rows_of
from tests.worlds.source_types import (
    DEFINITIONS,
    TYPES,
    SourceType,
    comparable,
    of_source,
    right_values,
    schema_of,
    units_of,
)
from tests.worlds.table_world import TableWorld
from tests.worlds.topic_world import committed
from tests.worlds.world import World
from tidemark.cli.main import main
from tidemark.providers.debezium.json import types_inside

PAGE = CHECKOUT / "docs" / "debezium-types.md"
TITLES = ("JSON", "JSON with schemas", "Avro")
STREAMED = 1_000  # added to the number of a value for the row that was inserted when the connector ran
VALUES = tuple((type_, value) for type_ in TYPES for value in (*type_.values, *type_.refused))
MakeWorld = Callable[..., World]
SHOP = {"shop_customers": "name text", "shop_products": "price numeric(10,2), sold date", "shop_stock": "n bigint"}
STORED_APART = "CREATE TABLE apart (id int PRIMARY KEY, n int, big text, tags hstore, prices numeric[])"
WORDS = {
    "int16": "SMALLINT", "int32": "INT", "int64": "BIGINT", "float": "FLOAT", "double": "DOUBLE", "bool": "BOOLEAN",
    "string": "STRING", "binary": "BINARY", "date32[day]": "DATE", "timestamp[us, tz=UTC]": "TIMESTAMP",
}  # fmt: skip


def plain(value: Any) -> Any:
    """A value as PostgreSQL writes it into JSON."""
    return float(value) if isinstance(value, Decimal) else str(value)


def insert_each_value(source: SourceOfChanges, first: int) -> None:
    """A row for each value, with null in all other columns."""
    source.execute(
        *(
            f"INSERT INTO types (id, {type_.name}) VALUES ({first + at}, {value})"
            for at, (type_, value) in enumerate(VALUES)
        )
    )


@pytest.fixture(scope="module")
def source(
    tmp_path_factory: pytest.TempPathFactory, broker: Broker, registry: SchemaRegistry
) -> Iterator[SourceOfChanges]:
    """The database of these tests, and its connectors, which have read half of its rows in a snapshot."""
    columns = ", ".join(f"{type_.name} {type_.sql}" for type_ in TYPES)
    shop = "; ".join(
        f"CREATE TABLE {name} (id int PRIMARY KEY, {more}); ALTER TABLE {name} REPLICA IDENTITY FULL"
        for name, more in SHOP.items()
    )
    tables = (
        f"{DEFINITIONS}; CREATE TABLE types (id int PRIMARY KEY, {columns}); {CopiedTable.DEFINITION}; {STORED_APART}; "
        f"{shop}"
    )
    with SourceOfChanges.opened(tmp_path_factory.mktemp("source"), broker, registry, tables) as opened:
        insert_each_value(opened, 0)
        opened.start_connect()
        opened.settle()  # a connector that runs may not have begun its snapshot
        yield opened


def settings_of(form: str, source: SourceOfChanges, table: str, decode: dict[str, Any]) -> dict[str, Any]:
    return {
        "decode": decode, "event_time": {}, "max_dead_letters": "100%",
        "kafka": {"topics": [source.topic(form, table)], "slice": {"max_records": 500}},
    }  # fmt: skip


@dataclass(frozen=True)
class Form:
    """The rows that records of a form became, by the offset, which is that of the value; dead letters are left out."""

    schema: pa.Schema
    rows: dict[int, dict[str, Any]]
    letters: dict[int, str]

    @classmethod
    def of(cls, form: str, source: SourceOfChanges, make_world: MakeWorld) -> "Form":
        lines = proposed(source) if form == "schemas" else schema_of(TYPES)
        decode = decode_of(form, f"id INT NOT NULL, {lines}", ["id"], units_of(TYPES))
        settings = settings_of(form, source, "types", decode)
        world = make_world(name=form, settings=settings, targets=registry_of(source))
        world.ok("run", form)
        tables = [pq.read_table(path, partitioning=None) for path in world.data_paths()]
        letters = [row for path in world.data_paths("--dead-letters") for row in pq.read_table(path).to_pylist()]
        return cls(
            tables[0].schema,
            {row["_offset"]: row for table in tables for row in table.to_pylist()},
            {letter["_offset"]: letter["_reason"] for letter in letters},
        )

    def column(self, type_: SourceType) -> str:
        """The type of its column."""
        return f"`{words(self.schema.field(type_.name).type)}`" if type_.name in self.schema.names else "none"

    def outcomes(self, at: int, type_: SourceType, right: dict[int, Any]) -> tuple[str, str]:
        """Return what a value became that was read in a snapshot, and that was inserted while the connector ran."""
        places = ((at, at), (at + len(VALUES), at + STREAMED))
        snapshot, streamed = (self._outcome(offset, type_, right[row]) for offset, row in places)
        return snapshot, streamed

    def _outcome(self, offset: int, type_: SourceType, right: dict[str, Any]) -> str:
        if offset in self.letters:
            return "dead letter"
        copied, wanted = (comparable([type_], row)[type_.name] for row in (self.rows[offset], right))
        if copied == wanted:
            return "the same"
        return "null" if copied is None else "another value"


def proposed(source: SourceOfChanges) -> str:
    """The lines of ``decode.schema`` that a record proposes by the schema beside it."""
    newest = committed(source.broker.bootstrap_servers, source.topic("schemas", "types"))[-1].value()
    assert newest is not None
    types = types_inside({"kind": "debezium"}, json.loads(newest))
    return ", ".join(f"{type_.name} {types.get(type_.name, type_.line)}" for type_ in TYPES)


def words(kind: pa.DataType) -> str:
    """A type of a column as ``decode.schema`` has it."""
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"ARRAY<{words(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"STRUCT<{', '.join(f'{field.name}: {words(field.type)}' for field in kind)}>"
    return WORDS[str(kind)]


def test_every_value_of_every_type_is_as_the_page_says(source: SourceOfChanges, make_world: MakeWorld) -> None:
    insert_each_value(source, STREAMED)
    source.settle()
    right = {key: of_source(row) for key, row in source.values(f"SELECT id, ({right_values(TYPES)})::text FROM types")}
    forms = [Form.of(form, source, make_world) for form in FORMS]
    columns = table_rows((type_.sql, f"{column_of(forms, type_)} | {type_.unit or ''}") for type_ in TYPES)
    values = []
    for type_ in TYPES:
        different = (
            (value, f"{', '.join(names)} | {' | '.join(outcome)}")
            for at, (its_type, value) in enumerate(VALUES)
            if its_type is type_
            for outcome, names in outcomes_of(forms, at, type_, right).items()
            if outcome != ("the same", "the same")
        )
        values += [f"| `{type_.sql}` {row}" for row in table_rows(different)]
    page = PAGE.read_text()
    made = "\n\n".join("\n".join(lines) for lines in (columns, values))
    assert all("\n".join(lines) in page for lines in (columns, values)), f"make the page's tables these:\n{made}"


def table_rows(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """The rows of a table: what has the same other cells stands in one row."""
    together: dict[str, list[str]] = {}
    for first, others in pairs:
        together.setdefault(others, []).append(f"`{first}`")
    return [f"| {', '.join(firsts)} | {others} |" for others, firsts in together.items()]


def column_of(forms: list[Form], type_: SourceType) -> str:
    """The column of a type in each form of records, told once where it is the same in all."""
    columns = {title: form.column(type_) for title, form in zip(TITLES, forms, strict=True)}
    if len(set(columns.values())) == 1:
        return columns["JSON"]
    return "; ".join(f"{title}: {column}" for title, column in columns.items())


def outcomes_of(
    forms: list[Form], at: int, type_: SourceType, right: dict[int, Any]
) -> dict[tuple[str, str], list[str]]:
    """The forms of records with the same outcome of a value; none for a type that a form has no column for."""
    by_outcome: dict[tuple[str, str], list[str]] = {}
    for name, form in zip(TITLES, forms, strict=True):
        if type_.name in form.schema.names:
            by_outcome.setdefault(form.outcomes(at, type_, right), []).append(name)
    return {outcome: ["all"] if len(names) == len(TITLES) else names for outcome, names in by_outcome.items()}


def test_a_copy_equals_its_source_after_the_connector_was_killed(
    source: SourceOfChanges, make_table_world: Callable[..., TableWorld], tmp_path: Path
) -> None:
    assert source.connect is not None
    table = CopiedTable(source, Random(1))
    settings = settings_of("json", source, "copied", table.decode("json")) | {
        "sinks": sinks(tmp_path, "copied", "postgres")
    }
    world = make_table_world(settings=settings)
    table.change(200)
    source.connect.kill()
    table.change(200)
    source.connect.restart()
    table.change(50)
    source.settle()
    world.ok("run", "demo")
    right = table.right()
    assert table.of_copy(READERS["postgres"](world, tmp_path, "copied")) == right
    assert len(right) > 10
    assert world.json("objects", "demo", "--dead-letters") == []


@pytest.mark.road
@pytest.mark.parametrize("form", FORMS)
def test_an_update_that_does_not_send_large_values_leaves_them_in_the_copy(
    source: SourceOfChanges, make_table_world: Callable[..., TableWorld], form: str
) -> None:
    row = {"avro": 1, "json": 2, "schemas": 3}[form]
    big = "(SELECT string_agg(repeat(md5(n::text), 9), '') FROM generate_series(1, 300) n)"
    prices = "(SELECT array_agg(n + 0.5) FROM generate_series(1, 3000) n)"
    source.execute(
        f"INSERT INTO apart VALUES ({row}, 1, {big}, hstore('a', {big}), {prices})",
        f"UPDATE apart SET n = 2 WHERE id = {row}",
    )
    source.settle()
    decode = decode_of(form, "id INT NOT NULL, n INT, big STRING, tags STRING, prices ARRAY<DECIMAL(38,1)>", ["id"], {})
    table = {"postgres": {"connection": "warehouse", "table": "apart", "key": ["id"], "auto_create": True}}
    world = make_table_world(settings=settings_of(form, source, "apart", decode) | {"sinks": [table]})
    world.targets |= registry_of(source)
    world.ok("run", "demo")
    assert world.query("SELECT n, length(big) AS length FROM apart WHERE id = %s", row) == [{"n": 1, "length": 86_400}]
    letters = world.json("dead-letters", "demo", "--show")["records"]
    assert len(letters) == world.query("SELECT count(*) AS count FROM apart")[0]["count"]
    assert all("REPLICA IDENTITY FULL" in letter["reason"] for letter in letters)


def test_a_group_copies_the_tables_of_a_prefix_into_lakes(
    source: SourceOfChanges, make_iceberg_world: Callable[..., IcebergWorld]
) -> None:
    """A key that all tables have; a column that one of them gets later is added to its copies."""
    rows = {
        "shop_customers": "SELECT n, 'c' || n FROM generate_series(1, 30) n",
        "shop_products": "SELECT n, n * 1.25, '2026-01-01'::date + n FROM generate_series(1, 30) n",
        "shop_stock": "SELECT n, n * 10000000000 FROM generate_series(1, 30) n",
    }
    source.execute(*(f"INSERT INTO {name} {select}" for name, select in rows.items()))
    source.execute(
        "UPDATE shop_customers SET name = NULL WHERE id % 3 = 0",
        "UPDATE shop_stock SET id = id + 1000 WHERE id % 7 = 0",
        "DELETE FROM shop_products WHERE id % 5 = 0",
    )
    source.settle()
    world = make_iceberg_world(iceberg={"table": "copies.{name}", "partition_by": [], "key": ["id"]})
    delta = {"delta": {"location": str(world.folder / "copies" / "{name}"), "key": ["id"], "auto_create": True,
                       "buckets": 1}}  # fmt: skip
    world.targets |= registry_of(source)
    world.settings |= {
        "kafka": {"topics": [], "topics_regex": rf"{source.prefix}avro\.public\.(?P<name>shop_.*)"},
        "each_topic": True,
        "decode": decode_of("avro", "", ["id"], {}),
        "event_time": {},
        "max_dead_letters": 0,
        "sinks": [*world.sinks(), delta],
    }
    world.write_pipeline()
    world.ok("run", "demo")
    source.execute("ALTER TABLE shop_stock ADD place text", "UPDATE shop_stock SET place = 'a' WHERE id = 1")
    source.execute("DELETE FROM shop_customers WHERE id = 1")
    source.settle()
    world.ok("run", "demo")
    for name in SHOP:
        right = {row["id"]: row for (text,) in source.values(f"SELECT to_json(t)::text FROM {name} t")
                 if (row := json.loads(text))}  # fmt: skip
        in_delta = DeltaTable(world.folder / "copies" / name).to_pyarrow_table().to_pylist()
        with world.catalog() as catalog:
            in_iceberg = catalog.load_table(f"copies.{name}").scan().to_arrow().to_pylist()
        columns = next(iter(right.values()))
        for copy in (in_iceberg, in_delta):
            current = [{column: row[column] for column in columns} for row in copy if not row["_is_deleted"]]
            assert len(current) == len(right) > 20
            assert {row["id"]: json.loads(json.dumps(row, default=plain)) for row in current} == right
    assert world.ok("audit", "demo", "--deep") == ""


@pytest.mark.road
def test_what_init_makes_copies_a_table(
    source: SourceOfChanges, make_table_world: Callable[..., TableWorld], tmp_path: Path
) -> None:
    """As README.md says it, with addresses and the prefix of topics that a user writes into the files."""
    project, shop = tmp_path / "shop", f"{source.prefix}init"
    assert CliRunner().invoke(main, ["init", str(project), "--from", "debezium"]).exit_code == 0
    source.execute(
        "CREATE TABLE orders (id bigint PRIMARY KEY, state text NOT NULL, price numeric(10,2), created_at timestamp)",
        "INSERT INTO orders SELECT n, 'new', n * 1.25, '2026-01-01'::timestamp + n * '7 min'::interval "
        "FROM generate_series(1, 300) n",
        (project / "source.sql").read_text(),
    )
    settings = json.loads((project / "connect" / "orders.json").read_text())
    own = source.connector(shop)
    assert own.keys() > {name for name in settings if name.startswith("database.")}
    changed = {
        name: own[name] for name in settings if name.startswith(("database.", "topic.pre", "slot", "publication.n"))
    }
    source.add_connector(shop, settings | changed)
    source.execute(
        "UPDATE orders SET state = 'paid', price = NULL WHERE id % 3 = 0",
        "UPDATE orders SET id = id + 1000 WHERE id % 7 = 0",
        "DELETE FROM orders WHERE id % 5 = 0",
    )
    source.wait_for_snapshot(shop)
    position = source.position()
    source.execute(  # the numbers are texts, so their scale is known
        "ALTER TABLE orders ALTER price TYPE numeric(12, 4)"
    )
    source.execute("INSERT INTO orders VALUES (0, 'new', 7.25, NULL)")
    source.wait_for(shop, position)
    world = make_table_world()
    (world.pipelines / "demo.yaml").unlink()
    pipeline = (project / "pipelines" / "orders.yaml").read_text()
    (world.pipelines / "orders.yaml").write_text(pipeline.replace("shop.public.orders", f"{shop}.public.orders"))
    kafka = {"conn_type": "kafka", "extra": {"bootstrap.servers": world.broker.bootstrap_servers}}
    world.targets["kafka_default"] = json.dumps(kafka)
    world.ok("validate")
    assert '"state": "paid"' in world.ok("peek", "orders", "--json", "-n", "400")
    world.ok("run", "orders")
    world.execute((project / "copy.sql").read_text())
    compare = (project / "compare.sql").read_text()
    [digest] = source.values(compare.replace(":table", "public.orders"))
    copied = rows_of(world.targets["warehouse"], compare.replace(":table", "shop.orders_now"))
    assert copied == [digest]
    assert digest[0] == source.values("SELECT count(*) FROM orders")[0][0] > 200
    assert world.json("objects", "orders", "--dead-letters") == []
