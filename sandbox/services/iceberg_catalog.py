"""A real REST catalog of Iceberg tables on a free port of 127.0.0.1: the server of Iceberg's own tests.

It keeps its tables in PostgreSQL, and their metadata below a folder of this machine or in a bucket. Any login gets a
token. The jars are fetched at the first start: 50 MB.
"""

import os
from pathlib import Path
from xml.sax.saxutils import escape

import httpx
import psycopg

from sandbox.bootstrap.jars import fetch_for_tests, java
from sandbox.services.processes import Child, Service, free_port, port_answers
from sandbox.services.s3 import REGION, Bucket

_LOCAL = {"io-impl": "org.apache.iceberg.TestTables$LocalFileIO"}
JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
# Stores that are not AWS may refuse checksums behind the bytes.
SDK = ("-Daws.requestChecksumCalculation=WHEN_REQUIRED", "-Daws.responseChecksumValidation=WHEN_REQUIRED")

# Jetty starts a server from such a file, so we need not compile any Java.
_SERVER = """\
<!DOCTYPE Configure PUBLIC "-//Jetty//Configure//EN" "configure_10_0.dtd">
<Configure id="server" class="org.eclipse.jetty.server.Server">
  <New id="catalog" class="org.apache.iceberg.jdbc.JdbcCatalog">
    <Call name="initialize">
      <Arg>rest</Arg>
      <Arg><Map>{options}</Map></Arg>
    </Call>
  </New>
  <Call name="addConnector">
    <Arg>
      <New class="org.eclipse.jetty.server.ServerConnector">
        <Arg><Ref refid="server"/></Arg>
        <Set name="host">127.0.0.1</Set>
        <Set name="port">{port}</Set>
      </New>
    </Arg>
  </Call>
  <Set name="handler">
    <New class="org.eclipse.jetty.servlet.ServletContextHandler">
      <Call name="addServlet">
        <Arg>
          <New class="org.eclipse.jetty.servlet.ServletHolder">
            <Arg>
              <New class="org.apache.iceberg.rest.RESTCatalogServlet">
                <Arg>
                  <New class="org.apache.iceberg.rest.RESTCatalogAdapter"><Arg><Ref refid="catalog"/></Arg></New>
                </Arg>
              </New>
            </Arg>
          </New>
        </Arg>
        <Arg>/*</Arg>
      </Call>
    </New>
  </Set>
</Configure>
"""


class IcebergCatalog(Service):
    """One catalog. ``dsn`` is an empty database, ``home`` keeps the jars.

    ``warehouse`` is the place of its tables: an absolute folder, or ``s3://bucket/prefix`` in the store ``s3``.
    """

    def __init__(self, state: Path, home: Path, dsn: str, warehouse: str, s3: Bucket | None = None) -> None:
        self.port = free_port()
        self.log = state.resolve() / "logs" / "iceberg-catalog.log"
        self._file = state.resolve() / f"iceberg-catalog-{self.port}.xml"
        self._home = home.resolve()
        self._options = {**jdbc_options(dsn), "warehouse": warehouse, **(_LOCAL if s3 is None else _bucket_of(s3))}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Fetch the jars if they are missing, and return when the catalog answers."""
        [jars] = fetch_for_tests(self._home, "catalog")
        entries = "".join(
            f"<Entry><Item>{escape(key)}</Item><Item>{escape(value)}</Item></Entry>"
            for key, value in self._options.items()
        )
        self._file.touch(0o600)
        self._file.write_text(_SERVER.format(options=entries, port=self.port))
        command = [java(), *JVM, *SDK, "-cp", f"{jars}/*", "org.eclipse.jetty.xml.XmlConfiguration", str(self._file)]
        self._child = Child("the REST catalog", command, self.log, env=dict(os.environ))
        self._child.wait_ready(self._answers, timeout=120)

    def _answers(self) -> bool:
        try:
            return port_answers(self.port) and httpx.get(f"{self.url}/v1/config", timeout=10).status_code == 200
        except httpx.HTTPError:
            return False


def _bucket_of(s3: Bucket) -> dict[str, str]:
    return {
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "http-client.type": "urlconnection",
        "client.region": REGION,
        "s3.endpoint": s3.endpoint_url,
        "s3.path-style-access": "true",
        "s3.access-key-id": s3.key_id,
        "s3.secret-access-key": s3.secret,
    }


def jdbc_options(dsn: str) -> dict[str, str]:
    """Return the options of Iceberg's Java for a SQL catalog in this database."""
    parts = psycopg.conninfo.conninfo_to_dict(dsn)
    return {
        "uri": f"jdbc:postgresql://{parts['host']}:{parts['port']}/{parts['dbname']}",
        "jdbc.user": str(parts["user"]),
        "jdbc.password": str(parts["password"]),
        "jdbc.schema-version": "V1",
    }
