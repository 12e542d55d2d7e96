"""The address of a Spark Connect server: from TIDEMARK_SPARK_REMOTE, else from the connection ``spark_connect``."""

from dataclasses import dataclass
from urllib.parse import quote, unquote
from uuid import UUID

from tidemark.connections.lookup import Lookup, Secret, variable_of
from tidemark.environment import Environment
from tidemark.errors import ConfigurationError, Unavailable
from tidemark.spark.reach import problem_with_address

CONN_ID = "spark_connect"
VARIABLE = "TIDEMARK_SPARK_REMOTE"
DEFAULT_PORT = 15002
USER = "tidemark"  # sessions belong to a user; all of our processes share them


@dataclass(frozen=True)
class Remote:
    """A server. ``options`` are those of Spark's addresses, such as ``use_ssl=true``, without session and user."""

    host: str
    port: int
    user: str = USER
    options: tuple[str, ...] = ()
    token: Secret | None = None

    @property
    def address(self) -> str:
        """Return the address without its secret, for messages."""
        return f"sc://{self.host}:{self.port}"

    @property
    def is_here(self) -> bool:
        """Return whether the address is one of this machine alone."""
        return self.host in ("localhost", "127.0.0.1", "[::1]")

    def url(self, session_id: UUID) -> str:
        """Return the address of one session, with its secret: only for Spark's client."""
        token = [] if self.token is None else [f"token={quote(self.token.reveal(), safe='')}"]
        return (
            f"{self.address}/;{';'.join([f'user_id={self.user}', f'session_id={session_id}', *self.options, *token])}"
        )

    def check(self) -> None:
        """Raise ``Unavailable`` if nothing accepts a connection there."""
        problem = problem_with_address(self.host, self.port)
        if problem is not None:
            where, listens = ("", "") if self.is_here else (f" on {self.host}", " --host ADDRESS")
            raise Unavailable(
                f"the Spark Connect server cannot be reached ({problem})",
                next_step=f"start it{where}: tidemark spark serve --port {self.port}{listens}; or let this machine "
                "connect to it. Nothing was read. Without it: spark: {engine: submit} in the pipeline file",
                server=self.address,
            )


def remote_of(environment: Environment, lookup: Lookup) -> Remote:
    """Return the server of the environment variable, or else of the connection. Raises ``ConfigurationError`` without
    either.
    """
    if environment.spark_remote:
        return parsed(environment.spark_remote, VARIABLE)
    connection = lookup(CONN_ID)
    if connection is None or not connection.get("host"):
        raise ConfigurationError(
            "no Spark Connect server is named",
            next_step=f"set {VARIABLE}=sc://host:{DEFAULT_PORT}, or {variable_of(CONN_ID)}="
            f'\'{{"conn_type": "spark_connect", "host": "..", "port": {DEFAULT_PORT}}}\', or add the connection in '
            "Airflow; or write spark: {engine: submit} into the pipeline file",
        )
    host, port = str(connection["host"]), connection.get("port")
    use_ssl = (connection.get("extra") or {}).get("use_ssl")
    words = {
        "user_id": connection.get("login"),
        "token": quote(connection.get("password") or "", safe=""),
        "use_ssl": use_ssl,
    }
    given = [f"{name}={str(word).lower() if isinstance(word, bool) else word}" for name, word in words.items() if word]
    address = host if "://" in host else f"sc://{host}"
    return parsed(f"{address}{f':{port}' if port else ''}/;{';'.join(given)}", f"the connection {CONN_ID}")


def parsed(text: str, where: str) -> Remote:
    """Return the server of an address such as ``sc://host:15002/;use_ssl=true;token=..``. No error quotes the
    address.
    """
    scheme, _, rest = text.strip().partition("://")
    place, _, words = rest.partition("/")
    host, colon, port = place.rpartition(":") if not place.endswith("]") else (place, "", "")
    host, port = (host, port) if colon else (place, str(DEFAULT_PORT))
    options = [word for word in words.removeprefix(";").split(";") if word]
    if scheme != "sc" or not host or not port.isdecimal() or any("=" not in word for word in options):
        raise ConfigurationError(
            f"{where} is not the address of a Spark Connect server",
            next_step=f"write it as sc://host:{DEFAULT_PORT}, or sc://host:{DEFAULT_PORT}/;use_ssl=true;token=..",
        )
    given = dict(word.split("=", 1) for word in options)
    if "session_id" in given:
        raise ConfigurationError(
            f"{where} has a session_id",
            next_step="leave it out: the session follows from database, package and properties",
        )
    token = unquote(given.pop("token", "")) or None
    return Remote(
        host,
        int(port),
        given.pop("user_id", USER),
        tuple(f"{name}={option}" for name, option in sorted(given.items())),
        None if token is None else Secret(token),
    )
