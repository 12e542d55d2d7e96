"""A client of a schema registry with Confluent's API, for the driver and for executors.

It needs only the standard library.
Address and security come from an Airflow connection, whose ``extra`` uses the names of Confluent's client:

    url                       or the connection's host, port and schema (http, https)
    basic.auth.user.info      USER:PASSWORD, or the connection's login and password
    bearer.auth.token
    ssl.ca.location           or ssl.ca.pem
    ssl.certificate.location  or ssl.certificate.pem; with ssl.key.location or ssl.key.pem, and ssl.key.password
"""

import json
import ssl
import time
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from http.client import HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, OpenerDirector, Request, build_opener

from tidemark.connections.lookup import Lookup, Secret, from_environment, masked, revealed, variable_of
from tidemark.errors import THEN_RETRY, AccessDenied, ConfigurationError, TidemarkError, Unavailable
from tidemark.providers.registry.base import Registry
from tidemark.providers.registry.registered_schema import RegisteredSchema, UnknownSchema
from tidemark.text import nearest

TIMEOUT_S = 15.0
PAUSES_S = (0.5, 2.0)  # before the second and the third request, if the registry does not answer
LARGEST = 16 * 2**20  # most bytes of an answer
MOST_REFERENCES = 1_000
MEDIA = "application/vnd.schemaregistry.v1+json, application/json"
ALLOWED: Final = (
    "url", "basic.auth.user.info", "bearer.auth.token", "ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location",
    "ssl.certificate.pem", "ssl.key.location", "ssl.key.pem", "ssl.key.password",
)  # fmt: skip
_SECRET: Final = ("basic.auth.user.info", "bearer.auth.token", "ssl.key.pem", "ssl.key.password")
_EXAMPLE = """'{"conn_type": "http", "login": "..", "password": "..", "extra": {"url": "https://HOST:PORT"}}'"""


class _NoRedirect(HTTPRedirectHandler):
    """Refuses redirects, because a redirect would carry the password to another place."""

    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(frozen=True)
class RegistryClient(Registry):
    """Asks one registry. ``options`` are those of the connection, by the names above, without ``url``."""

    url: str
    options: Mapping[str, str | Secret] = field(default_factory=dict)
    name: str = ""  # the name in messages: the connection, or the address

    @property
    def address(self) -> str:  # type: ignore[override]
        return self.url

    def by_writer(self, writer: str) -> RegisteredSchema:
        """Return the schema of an id or a GUID, with its references.

        Raises ``UnknownSchema``, or the error of a registry that does not answer.
        """
        if writer.isdigit():
            return self._whole(self._get(f"schemas/ids/{writer}"), int(writer))
        raw = self._get(f"schemas/guids/{quote(writer, safe='')}")
        return self._whole(raw, raw.get("id", -1))

    def by_subject(self, subject: str, version: int | None = None) -> RegisteredSchema:
        """Return a version of a subject, the newest for None; raises like ``by_writer``."""
        raw = self._get(f"subjects/{quote(subject, safe='')}/versions/{version or 'latest'}")
        return self._whole(raw, raw["id"])

    def id_of(self, subject: str, kind: str, text: str, *, register: bool) -> int:
        """Return the id of a schema for a subject.

        A schema that is not registered raises ``UnknownSchema``; with ``register`` it is registered now, which raises
        if the registry does not allow it. Other errors are those of ``by_writer``.
        """
        path = f"subjects/{quote(subject, safe='')}" + ("/versions" if register else "")
        return int(self._get(path, {"schemaType": kind, "schema": text})["id"])

    def subjects(self) -> list[str]:
        """Return all subjects. The request needs the right to read."""
        return list(self._get("subjects"))

    def _whole(self, raw: Mapping[str, Any], number: int) -> RegisteredSchema:
        references: dict[str, str] = {}
        self._refer(raw, references, set())
        return RegisteredSchema(number, raw.get("schemaType", "AVRO"), raw["schema"], tuple(references.items()))

    def _refer(self, raw: Mapping[str, Any], references: dict[str, str], seen: set[tuple[str, int]]) -> None:
        for reference in raw.get("references") or ():
            place = (reference["subject"], reference["version"])
            if place in seen:
                continue
            seen.add(place)
            if len(seen) > MOST_REFERENCES:
                raise self._wrong(f"has a schema with more than {MOST_REFERENCES} references")
            inner = self._get(f"subjects/{quote(place[0], safe='')}/versions/{place[1]}")
            self._refer(inner, references, seen)
            references[reference["name"]] = inner["schema"]

    def _get(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        for pause in PAUSES_S:
            try:
                return self._answer(path, body)
            except Unavailable:
                time.sleep(pause)
        return self._answer(path, body)

    def _answer(self, path: str, body: Mapping[str, Any] | None) -> Any:
        headers = {"Accept": MEDIA, **self._authorization} | ({"Content-Type": MEDIA.partition(",")[0]} if body else {})
        data = json.dumps(body).encode() if body else None
        request = Request(f"{self.url}/{path}", data, headers)  # noqa: S310 - its address is http or https
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as answer:
                content = answer.read(LARGEST + 1)
        except HTTPError as error:
            with error:
                raise self._refused(error, path) from None
        except (OSError, HTTPException) as error:
            raise self._silent(error) from None
        try:
            if len(content) > LARGEST:
                raise ValueError(f"longer than {LARGEST} bytes")
            return json.loads(content)
        except (ValueError, RecursionError):
            raise self._wrong(
                f"answered {path} with something other than JSON: is it the address of a registry?"
            ) from None

    def _refused(self, error: HTTPError, path: str) -> Exception:
        if error.code == 404:  # a registry explains a 404 in JSON; any other 404 comes from another kind of server
            if _answered(error, "error_code").startswith("404"):
                return UnknownSchema(path)
            return self._wrong(f"does not know {path}: is the address the one of its API, such as /apis/ccompat/v7?")
        if error.code in (409, 422):
            reason = _answered(error, "message")[:500] or error.code
            return ConfigurationError(
                f"the schema registry {self.name} does not accept a schema at {path}: {reason}",
                next_step="make the columns fit the schemas that the subject has (new columns nullable, none gone), "
                "change the compatibility of the subject, or name another subject",
            )
        if error.code in (401, 403):
            return AccessDenied(
                f"the schema registry {self.name} refused access to {path} ({error.code})",
                next_step="check the login, the token or the certificate of its connection, and its right to read",
            )
        if error.code == 429 or error.code >= 500:
            return Unavailable(
                f"the schema registry {self.name} answered {path} with {error.code}",
                next_step=f"look at the registry's log; nothing is published, and nothing is lost{THEN_RETRY}",
            )
        return self._wrong(f"answered {path} with {error.code}")

    def _silent(self, error: Exception) -> TidemarkError:
        reason = error.reason if isinstance(error, URLError) else error
        if isinstance(reason, ssl.SSLError):
            what = masked(str(reason.reason or reason), self.options)
            return ConfigurationError(
                f"the schema registry {self.name} and this client do not agree on TLS: {what}",
                next_step="set ssl.ca.location in its connection to the authority of its certificate, and "
                "ssl.certificate.location and ssl.key.location when it asks for a client's certificate",
            )
        return Unavailable(
            f"the schema registry {self.name} does not answer: {masked(str(reason), self.options)}",
            next_step=f"check its address and that it runs; nothing is published, and nothing is lost{THEN_RETRY}",
        )

    def _wrong(self, what: str) -> ConfigurationError:
        return ConfigurationError(
            f"the schema registry {self.name} {what}", next_step="check url in its connection, or decode.registry.url"
        )

    @cached_property
    def _authorization(self) -> dict[str, str]:
        options = revealed(self.options)
        basic, token = options.get("basic.auth.user.info"), options.get("bearer.auth.token")
        if basic:
            return {"Authorization": f"Basic {b64encode(basic.encode()).decode()}"}
        return {"Authorization": f"Bearer {token}"} if token else {}

    @cached_property
    def _opener(self) -> OpenerDirector:
        return build_opener(_NoRedirect, HTTPSHandler(context=self._context()))

    def _context(self) -> ssl.SSLContext:
        options = revealed(self.options)
        context = ssl.create_default_context(cafile=options.get("ssl.ca.location"), cadata=options.get("ssl.ca.pem"))
        certificate = _text(options, "ssl.certificate")
        if certificate:
            with TemporaryDirectory(prefix="tidemark-registry-") as folder:  # only its owner may enter it
                pair = Path(folder, "pair.pem")
                pair.write_text(f"{certificate}\n{_text(options, 'ssl.key') or ''}\n")
                # Without a password OpenSSL would ask for one on the terminal.
                context.load_cert_chain(pair, password=options.get("ssl.key.password", ""))
        return context


def _answered(error: HTTPError, name: str) -> str:
    """Return a value from the JSON of a registry's error; empty if the answer does not have it."""
    try:
        return str(json.loads(error.read(10_000)).get(name, ""))
    except (ValueError, AttributeError, OSError, HTTPException):
        return ""


def _text(options: Mapping[str, str], name: str) -> str | None:
    path = options.get(f"{name}.location")
    return Path(path).read_text() if path else options.get(f"{name}.pem")


def open_registry(config: Mapping[str, Any], lookup: Lookup = from_environment) -> RegistryClient:
    """Open the registry of ``registry`` in an order: at its ``url``, or by the ``connection`` to look up.

    Raises ``ConfigurationError`` if the connection is missing or wrong. Sends no request yet.
    """
    if config.get("url"):
        return RegistryClient(config["url"].rstrip("/"), {}, config["url"])
    conn_id = config["connection"]
    connection = lookup(conn_id)
    if connection is None:
        raise _unusable(conn_id, "does not exist", f"set {variable_of(conn_id)}={_EXAMPLE}")
    extra = {key: value for key, value in (connection.get("extra") or {}).items() if value not in (None, "")}
    for key, value in extra.items():
        if key not in ALLOWED:
            close = nearest(key, ALLOWED)
            raise _unusable(conn_id, f"sets {key}, which is not allowed", f"{close}; allowed: {', '.join(ALLOWED)}")
        if not isinstance(value, str):
            raise _unusable(conn_id, f"sets {key} to a value that is not text", "write its value as text")
    login, password = connection.get("login"), connection.get("password")
    if login and "basic.auth.user.info" not in extra:
        extra["basic.auth.user.info"] = f"{login}:{password or ''}"
    elif password and not login and extra.setdefault("bearer.auth.token", str(password)) != str(password):
        raise _unusable(
            conn_id, "has a password and another bearer.auth.token", "keep the password, which is the token"
        )
    _check(conn_id, extra)
    url = _address(conn_id, connection, extra.pop("url", None))
    options = {key: Secret(value) if key in _SECRET else value for key, value in sorted(extra.items())}
    registry = RegistryClient(url, options, conn_id)
    try:
        registry._opener  # noqa: B018 - reads the certificates
    except (OSError, ValueError) as problem:  # ssl.SSLError is an OSError
        what = f"cannot be used: its certificates do not load: {masked(str(problem), options)}"
        raise _unusable(conn_id, what, "check the files of ssl.*, which must be PEM, and ssl.key.password") from None
    return registry


def _check(conn_id: str, extra: Mapping[str, str]) -> None:
    if "basic.auth.user.info" in extra and "bearer.auth.token" in extra:
        raise _unusable(conn_id, "has a login and a bearer.auth.token", "keep one of the two")
    for name in ("ssl.ca", "ssl.certificate", "ssl.key"):
        if f"{name}.location" in extra and f"{name}.pem" in extra:
            raise _unusable(conn_id, f"sets {name}.location and {name}.pem", "keep one of the two")
    has = {name: any(key.startswith(f"{name}.") for key in extra) for name in ("ssl.certificate", "ssl.key")}
    if has["ssl.key"] and not has["ssl.certificate"]:
        raise _unusable(conn_id, "has ssl.key without ssl.certificate", "set ssl.certificate.location too")


def _address(conn_id: str, connection: Mapping[str, Any], url: str | None) -> str:
    if url is None and connection.get("host"):
        host, port = str(connection["host"]), connection.get("port")
        scheme = "" if "://" in host else f"{connection.get('schema') or 'http'}://"
        url = f"{scheme}{host}:{port}" if port else f"{scheme}{host}"
    parts = urlsplit(url or "")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise _unusable(conn_id, "names no registry", """set "url" in its extra, such as "https://registry:8081\"""")
    if parts.username or parts.password:
        raise _unusable(conn_id, "has a password in its url", "write it as login and password of the connection")
    return (url or "").rstrip("/")


def _unusable(conn_id: str, what: str, next_step: str) -> ConfigurationError:
    return ConfigurationError(
        f"the schema registry's connection {conn_id} {what}", next_step=next_step.lstrip("; "), connection=conn_id
    )
