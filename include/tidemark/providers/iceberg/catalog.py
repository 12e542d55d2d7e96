"""Opens the catalog that a pipeline file names, and translates the errors of its client.

Secrets come from connections; no error quotes them.
"""

import json
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn
from urllib.parse import quote, urlencode

import requests
from pyiceberg.catalog import AVAILABLE_CATALOGS, Catalog, CatalogType
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    CommitFailedException,
    ForbiddenError,
    OAuthError,
    RESTError,
    SignError,
    UnauthorizedError,
)
from pyiceberg.io import PY_IO_IMPL
from requests.adapters import HTTPAdapter
from sqlalchemy.exc import OperationalError, ProgrammingError, SQLAlchemyError

from tidemark.connections.lookup import Lookup, Secret, masked, reveal, revealed, variable_of
from tidemark.database.postgres_errors import is_refused
from tidemark.errors import THEN_RETRY, AccessDenied, ConfigurationError, SinkRefused, TidemarkError, Unavailable
from tidemark.paths import is_remote
from tidemark.providers.iceberg.file_io import STORE, StoreFileIO
from tidemark.providers.iceberg.settings import CatalogKind, Settings
from tidemark.providers.lake_tables.refusals import file_gone
from tidemark.storage.local import disk_error

CONNECT_S, READ_S = 5, 60
FILE_IO = f"{StoreFileIO.__module__}.{StoreFileIO.__qualname__}"
Properties = dict[str, str | Secret]

_EXTRA = {
    CatalogKind.SQL: {"sslmode", "sslrootcert", "sslcert", "sslkey"},
    CatalogKind.REST: {"token", "scope", "oauth2-server-uri"},
    CatalogKind.HIVE: set[str](),
    CatalogKind.GLUE: {"region_name", "endpoint_url", "aws_session_token", "profile_name"},
}
_ACCESS = "correct login and password of its connection, or give that user the right"
_ANSWER = "check that it runs, and its connection"
_EXAMPLE = {
    CatalogKind.SQL: "postgresql://USER:PASSWORD@HOST:PORT/DATABASE",
    CatalogKind.REST: "https://CLIENT:SECRET@HOST:PORT/PATH",
    CatalogKind.HIVE: "thrift://HOST:PORT",
    CatalogKind.GLUE: "aws://KEY_ID:SECRET@/?region_name=REGION",
}


class OpenCatalog:
    """A catalog, with the properties it was opened with. The properties hold secrets."""

    def __init__(self, settings: Settings, lookup: Lookup) -> None:
        self.properties = _properties(settings, lookup)
        self._blocks = 0
        with self._translated({}):
            kind = CatalogType(settings.catalog.value)
            self.catalog: Catalog = AVAILABLE_CATALOGS[kind](settings.catalog_name, revealed(self.properties))
        self._close_connections()
        session = getattr(self.catalog, "_session", None)
        if session is not None:  # the client of REST catalogs has no timeouts of its own
            session.mount("https://", _Limited())
            session.mount("http://", _Limited())

    @contextmanager
    def used(self, **context: object) -> Iterator[None]:
        """Translate errors of the client; a refused commit (``CommitFailedException``) is raised unchanged.

        Calls in one block share a connection to a SQL catalog. No connection stays open for the hours that Spark works.
        """
        with self.kept_open(), self._translated(context):
            yield

    @contextmanager
    def kept_open(self) -> Iterator["OpenCatalog"]:
        """Keep the connections open until the block ends, also after other blocks end. Errors inside are not
        translated."""
        self._blocks += 1
        try:
            yield self
        finally:
            self._blocks -= 1
            if not self._blocks:
                self._close_connections()

    def _close_connections(self) -> None:
        if isinstance(self.catalog, SqlCatalog):
            self.catalog.engine.dispose()

    @contextmanager
    def _translated(self, context: Mapping[str, object]) -> Iterator[None]:
        try:
            yield
        except TidemarkError as error:  # ``StoreFileIO`` raises errors of the store
            error.within(**context)
            raise
        except CommitFailedException:
            raise
        except (UnauthorizedError, ForbiddenError, AuthorizationExpiredError, OAuthError, SignError) as error:
            self._raise(AccessDenied, "refuses access", _ACCESS, error, context)
        except ProgrammingError as error:
            self._raise(AccessDenied, "refuses a statement", "give its user the right", error, context)
        except OSError as error:
            is_gone = isinstance(error, FileNotFoundError)
            if is_gone or error.filename is not None:  # a file of the table; errors of a connection name no file
                problem = file_gone(error, context) if is_gone else disk_error(error)
                problem.within(**context)
                raise problem from error
            self._raise(Unavailable, "does not answer", _ANSWER, error, context)
        except (SQLAlchemyError, RESTError) as error:
            if isinstance(error, OperationalError) and self._refuses_client(error):
                self._raise(AccessDenied, "refuses access", _ACCESS, error, context)
            self._raise(Unavailable, "does not answer", _ANSWER, error, context)
        except Exception as error:
            client = type(error).__module__.partition(".")[0]
            if client == "botocore" and _is_refused_by_aws(error):
                self._raise(AccessDenied, "refuses access", _ACCESS, error, context)
            if client in ("botocore", "thrift", "hive_metastore"):
                self._raise(Unavailable, "does not answer", _ANSWER, error, context)
            self._raise(SinkRefused, "cannot do this", "correct the table, or its catalog", error, context)

    def _refuses_client(self, error: OperationalError) -> bool:
        dsn = str(reveal(self.properties["uri"])).replace("+psycopg", "", 1)
        return is_refused(error.orig, dsn)

    def _raise(
        self, kind: type[TidemarkError], what: str, step: str, error: Exception, context: Mapping[str, object]
    ) -> NoReturn:
        # The causes of an error of SQLAlchemy or requests may show addresses with passwords.
        text = masked(" ".join(str(error).split()), self.properties)[:300]
        raise kind(
            f"the catalog {what}: {type(error).__name__}: {text}",
            next_step=step + THEN_RETRY,
            **context,
        ) from None


class _Limited(HTTPAdapter):
    def send(self, request: Any, *args: Any, **kwargs: Any) -> requests.Response:
        kwargs["timeout"] = kwargs.get("timeout") or (CONNECT_S, READ_S)
        return super().send(request, *args, **kwargs)


def catalog_key(settings: Settings, lookup: Lookup) -> Hashable:
    """Return a key that is equal for catalogs which can share one client: kind, name, and all properties of the
    client."""
    return settings.catalog, settings.catalog_name, frozenset(_properties(settings, lookup).items())


def _properties(settings: Settings, lookup: Lookup) -> Properties:
    """Return all properties that the client of the catalog gets."""
    properties: Properties = {PY_IO_IMPL: FILE_IO, **settings.options}
    if settings.warehouse is not None:
        is_folder = settings.warehouse.startswith("/")
        properties["warehouse"] = f"file://{settings.warehouse}" if is_folder else settings.warehouse
    if settings.store_connection or settings.s3.model_fields_set or is_remote(settings.warehouse or ""):
        entry = lookup(settings.store_connection) if settings.store_connection else None
        properties[STORE] = Secret(json.dumps({"settings": settings.store_settings(), "connection": entry}))
    connection = _connection(settings, lookup)
    extra = connection.get("extra") or {}
    match settings.catalog:
        case CatalogKind.SQL:
            properties |= {"uri": _sql(connection)}
            properties |= {"password": Secret(str(connection.get("password") or ""))}
            properties |= {"pool_pre_ping": "true"}  # the server may have closed a kept connection meanwhile
        case CatalogKind.REST:
            properties |= {"uri": _address(connection)}
            if connection.get("login"):
                properties["credential"] = Secret(f"{connection['login']}:{connection.get('password') or ''}")
                # The client would use this address by default too, but with a warning at every command.
                properties["oauth2-server-uri"] = f"{_address(connection)}/v1/oauth/tokens"
            elif connection.get("password"):
                properties["token"] = Secret(str(connection["password"]))
            properties |= {key: Secret(str(value)) if key == "token" else str(value) for key, value in extra.items()}
        case CatalogKind.HIVE:
            properties |= {"uri": f"thrift://{connection.get('host')}:{connection.get('port') or 9083}"}
        case CatalogKind.GLUE:
            properties |= _glue(connection, extra)
    return properties


def _connection(settings: Settings, lookup: Lookup) -> Mapping[str, Any]:
    conn_id, kind = settings.connection, settings.catalog
    if conn_id is None:
        return {}
    connection = lookup(conn_id)
    if connection is None:
        raise ConfigurationError(
            f"the connection {conn_id} of the {kind} catalog does not exist",
            next_step=f"set {variable_of(conn_id)}={_EXAMPLE[kind]}, or add it in Airflow under Admin, Connections",
            connection=conn_id,
        )
    unknown = sorted((connection.get("extra") or {}).keys() - _EXTRA[kind])
    if unknown:
        raise ConfigurationError(
            f"the connection {conn_id} of the {kind} catalog has unknown keys in its extra: {', '.join(unknown)}",
            next_step=f"remove them; allowed in its extra: {', '.join(sorted(_EXTRA[kind])) or 'nothing'}",
            connection=conn_id,
        )
    return connection


def _sql(connection: Mapping[str, Any]) -> Secret:
    user = quote(str(connection.get("login") or ""), safe="")
    password = quote(str(connection.get("password") or ""), safe="")
    place = f"{connection.get('host') or ''}:{connection.get('port') or 5432}/{connection.get('schema') or ''}"
    options = {"connect_timeout": CONNECT_S, "options": f"-c statement_timeout={READ_S}s"}
    query = urlencode({**options, **(connection.get("extra") or {})}, quote_via=quote)
    return Secret(f"postgresql+psycopg://{user}:{password}@{place}?{query}")


def _address(connection: Mapping[str, Any]) -> str:
    host = str(connection.get("host") or "")
    if "://" in host:
        return host
    port = f":{connection['port']}" if connection.get("port") else ""
    return f"{connection.get('conn_type')}://{host}{port}/{connection.get('schema') or ''}".rstrip("/")


def _glue(connection: Mapping[str, Any], extra: Mapping[str, Any]) -> Properties:
    given = {
        "glue.access-key-id": _secret(connection.get("login")),
        "glue.secret-access-key": _secret(connection.get("password")),
        "glue.session-token": _secret(extra.get("aws_session_token")),
        "glue.region": extra.get("region_name"),
        "glue.endpoint": extra.get("endpoint_url"),
        "glue.profile-name": extra.get("profile_name"),
    }
    return {key: value for key, value in given.items() if value}


def _is_refused_by_aws(error: Exception) -> bool:
    # Imported late: it needs boto3, which other catalogs do without.
    from tidemark.storage.s3.client import are_keys_refused

    return are_keys_refused(error)


def _secret(value: object) -> Secret | None:
    return Secret(str(value)) if value else None
