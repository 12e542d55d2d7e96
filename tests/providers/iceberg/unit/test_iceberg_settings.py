"""What a pipeline file may say of an Iceberg table, and what the client of each catalog gets."""

from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.worlds.local_http import LocalHttp
from tidemark.config.base import LoadContext
from tidemark.connections.lookup import Secret
from tidemark.decoders.json.settings import Settings as Json
from tidemark.errors import AccessDenied, ConfigurationError, TidemarkError, Unavailable
from tidemark.providers.iceberg.catalog import OpenCatalog, _properties
from tidemark.providers.iceberg.settings import Settings

RIGHT: Mapping[str, Any] = {"connection": "lakehouse", "table": "sales.orders", "warehouse": "warehouse"}
CANARY = "canary-of-a-catalog"


def settings(**changed: Any) -> Settings:
    given = {key: value for key, value in {**RIGHT, **changed}.items() if value is not ...}
    return Settings.model_validate(given, context=LoadContext(Path("/files"), Path("/lakes")))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"connection": ...}, "is needed for a catalog of kind sql"),
        ({"warehouse": ...}, "is needed for a catalog of kind sql: it says where tables lie"),
        ({"table": "orders"}, "must be a namespace and a table such as sales.prices"),
        ({"partition_by": ["week(at)"]}, "must be a column, or year|month|day|hour"),
        ({"partition_by": ["day(at)", "day( at )"]}, "gives two partitions the name at_day"),
        ({"options": {"s3.secret-access-key": "x"}}, "belongs into the connection"),
        ({"options": {"uri": "postgresql://x"}}, "belongs into the connection"),
        ({"keep_snapshots": 0}, "greater than or equal to 1"),
        ({"catalog": "nessie"}, "Input should be 'sql', 'rest', 'glue' or 'hive'"),
    ],
)
def test_a_wrong_setting_is_named(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as refused:
        settings(**changed)
    assert message in str(refused.value)


def test_only_glue_needs_no_connection_and_a_warehouse_of_rest_is_a_name() -> None:
    assert settings(catalog="glue", connection=...).connections() == set()
    rest = settings(catalog="rest", warehouse="lake")
    assert (rest.warehouse, rest.folders()) == ("lake", set())
    assert settings().folders() == {"/lakes/warehouse"}


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        ("day(_event_time)", None),
        ("bucket(8, customer)", None),
        ("day(bought)", None),
        ("custmer", 'has no column custmer for a partition; did you mean "customer"?'),
        ("note", "may not be partitioned by note: it can be null"),
        ("price", "may not be partitioned by price: price is double"),
        ("hour(bought)", "may not be partitioned by hour(bought): bought is date32[day]"),
    ],
)
def test_a_partition_must_fit_the_columns(partition: str, message: str | None) -> None:
    schema = "customer STRING NOT NULL, bought DATE NOT NULL, price DOUBLE NOT NULL, note STRING"
    rows = Json.model_validate({"format": "json", "schema": schema})
    problem = settings(partition_by=[partition]).problem_with(rows)
    assert problem is None if message is None else problem.startswith(message)


@pytest.mark.parametrize(
    ("schema", "partitions", "message"),
    [
        ("at_day STRING, at DATE NOT NULL", ["day(at)"], "may not have a column at_day: partition_by gives that name"),
        ("AT_DAY STRING, at DATE NOT NULL", ["day(at)"], "may not have a column AT_DAY: partition_by gives that name"),
        ("id_bucket INT, id INT NOT NULL", ["bucket(8, id)"], "may not have a column id_bucket: partition_by gives"),
        ("at_day STRING, at DATE NOT NULL", ["month(at)"], None),
        ("id INT NOT NULL, s STRUCT<id_bucket: INT>", ["bucket(8, id)", "id"], None),
        ("`a.b` INT, a STRUCT<b: INT>", [], "may not have a column a.b: a.b could be the path of a field inside a"),
        ("`a.list.element` INT, a ARRAY<INT>", [], "may not have a column a.list.element: "),
        ("`a.b` INT, a INT", [], None),
    ],
)
def test_a_name_that_the_format_uses_itself_is_refused(schema: str, partitions: list[str], message: str | None) -> None:
    rows = Json.model_validate({"format": "json", "schema": schema})
    problem = settings(partition_by=partitions).problem_with_rows(rows, rows.arrow_schema())
    assert problem is None if message is None else problem.startswith(message)


CATALOGS = [
    ("sql", {"login": "u", "password": CANARY, "host": "db", "port": 5433, "schema": "cat", "extra": {}}),
    ("rest", {"conn_type": "https", "host": "cat", "login": "id", "password": CANARY, "extra": {"token": CANARY}}),
    ("glue", {"login": "key", "password": CANARY, "extra": {"region_name": "eu-central-1"}}),
    ("hive", {"host": "hive", "port": None, "extra": {}}),
]


@pytest.mark.parametrize(("catalog", "connection"), CATALOGS)
def test_secrets_reach_the_client_only(
    catalog: str, connection: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark.providers.iceberg.settings.absent_libraries", lambda _: None)  # not locked here
    chosen = settings(catalog=catalog)
    given = _properties(chosen, lambda _: connection)
    assert CANARY not in repr(given)
    assert CANARY not in repr(chosen.order()) + chosen.target
    hidden = [value.reveal() for value in given.values() if isinstance(value, Secret)]
    assert any(CANARY in value for value in hidden) is (catalog != "hive")
    addresses = {
        "sql": "postgresql+psycopg://u:canary-of-a-catalog@db:5433/cat?connect_timeout=5",
        "rest": "https://cat", "glue": "eu-central-1", "hive": "thrift://hive:9083",
    }  # fmt: skip
    uri = given.get("uri", given.get("glue.region"))
    shown = uri.reveal() if isinstance(uri, Secret) else str(uri)
    assert shown.startswith(addresses[catalog])


def test_a_token_of_a_rest_catalog_is_the_password_of_a_connection_without_a_login() -> None:
    connection = {"conn_type": "https", "host": "cat", "password": CANARY, "extra": {}}
    given = _properties(settings(catalog="rest"), lambda _: connection)
    assert given["token"] == Secret(CANARY)
    assert "credential" not in given


def test_a_connection_that_is_missing_or_says_too_much_is_named() -> None:
    with pytest.raises(ConfigurationError, match="the connection lakehouse of the sql catalog does not exist"):
        _properties(settings(), lambda _: None)
    with pytest.raises(ConfigurationError, match="has unknown keys in its extra: keepalives"):
        _properties(settings(), lambda _: {"extra": {"keepalives": "1"}})


@pytest.fixture
def gateway() -> Iterator[int]:
    """The port of a server that answers every request with a time-out, as a gateway does."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(504)
            self.end_headers()

        def log_message(self, format: str, *words: Any) -> None:  # noqa: A002
            pass

    with LocalHttp(Answer) as server:
        yield server.own_port


def test_a_rest_catalog_that_times_out_or_is_not_there_is_named_without_its_secret(gateway: int) -> None:
    for port in (gateway, 1):
        connection = {"conn_type": "http", "host": "127.0.0.1", "port": port, "extra": {"token": CANARY}}
        with pytest.raises(Unavailable, match="the catalog does not answer") as refused:
            OpenCatalog(settings(catalog="rest", warehouse="lake"), lambda _, entry=connection: entry)  # type: ignore[misc]
        assert isinstance(refused.value, TidemarkError)
        assert CANARY not in str(refused.value)


@pytest.fixture
def refusing_glue() -> Iterator[int]:
    """The port of a server that knows no key, as Glue says it."""

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(400)
            self.end_headers()
            self.wfile.write(b'{"__type": "UnrecognizedClientException", "message": "The security token is invalid."}')

        def log_message(self, format: str, *words: Any) -> None:  # noqa: A002
            pass

    with LocalHttp(Answer) as server:
        yield server.own_port


def test_a_glue_catalog_that_does_not_know_the_keys_denies_access(refusing_glue: int) -> None:
    extra = {"region_name": "eu-central-1", "endpoint_url": f"http://127.0.0.1:{refusing_glue}"}
    connection = {"conn_type": "aws", "login": "key", "password": CANARY, "extra": extra}
    opened = OpenCatalog(settings(catalog="glue"), lambda _: connection)
    with pytest.raises(AccessDenied, match="the catalog refuses access") as refused, opened.used():
        opened.catalog.list_namespaces()
    assert CANARY not in str(refused.value)


def test_an_error_of_something_else_is_not_that_of_a_catalog_that_is_kept_open(refusing_glue: int) -> None:
    extra = {"region_name": "eu-central-1", "endpoint_url": f"http://127.0.0.1:{refusing_glue}"}
    opened = OpenCatalog(settings(catalog="glue"), lambda _: {"conn_type": "aws", "extra": extra})
    with pytest.raises(LookupError, match="of another target"), opened.kept_open():
        raise LookupError("of another target")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"key": []}, "must have at least one entry"),
        ({"key": ["id", "id"]}, "must name each column once"),
        ({"key": ["_topic", "_topic_partition", "_offset"]}, "may not have _offset without _log_generation"),
        ({"order_by": "at"}, "needs key: the columns that name a row"),
        ({"key": ["id"], "partition_by": ["day(_event_time)"]}, "may not have day(_event_time) where the table has"),
        ({"key": ["id"], "partition_by": ["bucket(4, name)"]}, "of a whole number or text in the key (id)"),
        ({"key": ["id"], "partition_by": ["id"]}, "rows of one key must lie in one partition"),
    ],
)
def test_a_wrong_key_is_named(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as refused:
        settings(**changed)
    assert message in str(refused.value)


def test_a_table_with_a_key_has_no_partitions_unless_the_file_names_buckets_of_it() -> None:
    assert settings(key=["id"]).terms == ()
    assert [str(term) for term in settings(key=["id"], partition_by=["bucket(4, id)"]).terms] == ["bucket(4, id)"]
    assert [str(term) for term in settings().terms] == ["day(_event_time)"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"key": ["id"]}, None),
        ({"key": ["id"], "order_by": "_timestamp"}, None),
        ({"key": ["_topic", "_topic_partition", "_offset", "_log_generation"]}, None),
        ({"key": ["idd"]}, 'has no column idd for its key; did you mean "id"?'),
        ({"key": ["note"]}, "may not have note in its key: it can be null"),
        ({"key": ["price"]}, "may not have price in its key: it is double"),
        ({"key": ["id"], "order_by": "note"}, "may not order by note: it can be null"),
        ({"key": ["id", "_row"]}, "may not have _row in its key: only explode gives a record several rows"),
    ],
)
def test_a_key_and_its_order_must_fit_the_columns(changed: dict[str, Any], message: str | None) -> None:
    schema = "id BIGINT NOT NULL, price DOUBLE NOT NULL, note STRING"
    rows = Json.model_validate({"format": "json", "schema": schema}).rows()
    assert rows is not None
    problem = settings(**changed).problem_with(rows)
    assert problem is None if message is None else problem.startswith(message)


def test_a_key_decides_the_output_and_a_table_without_one_has_the_fingerprint_it_had() -> None:
    assert settings().decides_output() == "{}"
    assert settings(key=["id"]).decides_output() == '{"key":["id"]}'


def test_an_order_that_deletions_lack_is_refused_with_the_way_out() -> None:
    schema = "id BIGINT NOT NULL, version BIGINT NOT NULL"
    rows = Json.model_validate({"format": "json", "schema": schema, "tombstones": ["id"]}).rows()
    assert rows is not None
    problem = settings(key=["id"], order_by="version").problem_with(rows)
    assert problem is not None
    assert problem.startswith("may not order by version: a deletion has no such field; write order_by: _timestamp")
