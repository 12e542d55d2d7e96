"""The jars of Spark's connectors that fit the installed PySpark: where they are, and how they are fetched.

``jars.txt`` is the table of the versions of PySpark that Tidemark was run with: their jars, and the SHA-256 of each. It
is a part of ``jars/jars.lock`` that users need, too, and `make lock` writes it. A SASL mechanism that a provider brings
may have such a table in its folder.
"""

import hashlib
import shutil
import subprocess
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.sax.saxutils import quoteattr

from tidemark.errors import ConfigurationError, WorkFailed
from tidemark.kinds import MECHANISMS
from tidemark.model.findings import Finding, failed, ok, warning
from tidemark.sources.registry import connectors
from tidemark.spark.java import java_command

FETCH = "tidemark spark jars"
# One place, not the five that Ivy asks by itself, which takes minutes. The hashes of the table replace its checks.
SETTINGS = (
    '<ivysettings><settings defaultResolver="maven"/><resolvers><ibiblio name="maven" m2compatible="true" '
    'usepoms="false" useMavenMetadata="false" checksums=""{root}/></resolvers></ivysettings>'
)
MODULE = (
    '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
    '<info organisation="tidemark" module="jars"/><configurations><conf name="default"/>'
    "</configurations><dependencies>{}</dependencies></ivy-module>"
)


@dataclass(frozen=True)
class Jar:
    organisation: str
    name: str
    revision: str
    sha256: str
    classifier: str = ""

    @property
    def file_name(self) -> str:
        return f"{'-'.join(filter(None, (self.name, self.revision, self.classifier)))}.jar"

    def is_in(self, folder: Path) -> bool:
        """Return whether the folder has this file, with the content of the table."""
        path = folder / self.file_name
        return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == self.sha256


@cache
def known_jars() -> dict[str, list[Jar]]:
    """Return the jars of the connectors, by version of PySpark."""
    jars: dict[str, list[Jar]] = {}
    for spark, jar in _table(files("tidemark.spark") / "jars.txt"):
        jars.setdefault(spark.removeprefix("spark-"), []).append(jar)
    return jars


def wanted_jars() -> list[Jar]:
    """Return the jars for the installed PySpark, and those of SASL mechanisms whose libraries are installed."""
    installed = [package for name, package in MECHANISMS.items() if MECHANISMS.problem_with(name) is None]
    tables = [table for package in installed if (table := files(package) / "jars.txt").is_file()]
    return [*known_jars()[version("pyspark")], *(jar for table in tables for _, jar in _table(table))]


def _table(file: Traversable) -> Iterator[tuple[str, Jar]]:
    """Yield the first word of each line, and its jar."""
    for line in file.read_text().splitlines():
        first, *words = line.split()
        yield first, Jar(*words)


def fitting_jars(folder: Path) -> Path:
    """Return the folder with the jars for the installed PySpark: that of its version in ``folder``, else ``folder``."""
    of_version = folder / version("pyspark")
    return of_version if of_version.is_dir() else folder


def refuse_other_versions(folder: Path) -> None:
    """Raise ``ConfigurationError`` for a connector of another Spark: it fails in the middle of a job."""
    for name, versions in _connector_versions(folder):
        if versions not in ([], [version("pyspark")]):
            raise ConfigurationError(_of_other_version(name, versions, folder), next_step=step_to_jars())


def _connector_versions(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each jar that must have PySpark's version, with the versions that the folder has of it."""
    for name in (name for connector in connectors() for name in connector.jars):
        jars = folder.glob(f"{name}-*.jar")
        yield name, sorted(path.name.removeprefix(f"{name}-").removesuffix(".jar") for path in jars)


def _of_other_version(name: str, versions: list[str], folder: Path) -> str:
    return f"PySpark {version('pyspark')} is installed, {name} is for {', '.join(versions)}: {folder}"


def _without_jars() -> str | None:
    """Return what is wrong when no jars are known for the installed PySpark; None when some are."""
    wanted, known = version("pyspark"), known_jars()
    if wanted in known:
        return None
    return (
        f"PySpark {wanted} is installed; jars are known for {', '.join(known)}, the versions that Tidemark was run with"
    )


def step_to_jars() -> str:
    """Return what to do to have the jars for the installed PySpark, or for one that has jars."""
    wanted, known = version("pyspark"), list(known_jars())
    if wanted in known:
        return f"{FETCH} fetches the jars for PySpark {wanted} into TIDEMARK_SPARK_JARS"
    alike = [each for each in known if each.rpartition(".")[0] == wanted.rpartition(".")[0]]
    return f"pip install pyspark=={(alike or known)[-1]} (pyspark-client, if installed, too), then: {FETCH}"


def findings(folder: Path | None, further: Collection[str] = ()) -> Iterator[Finding]:
    """Check that Spark's connectors have the version of PySpark; another version fails in the middle of a job.

    ``further`` are the names of the jars that connections of pipelines need beside them.
    """
    if folder is None:
        names = " and the ".join([*(connector.name for connector in connectors()), *sorted(further)])
        yield warning(
            "spark jars",
            f"TIDEMARK_SPARK_JARS is not set: then Spark's own class path must have the {names}",
            f"set it to a folder, then: {FETCH}",
        )
        return
    fitting = fitting_jars(folder)
    for name, versions in _connector_versions(fitting):
        if versions == [version("pyspark")]:
            yield ok("spark jars", f"{name} {versions[0]}")
        elif versions:
            yield failed("spark jars", _of_other_version(name, versions, fitting), step_to_jars())
        else:
            yield failed("spark jars", _without_jars() or f"{name} is not in {fitting}", step_to_jars())
    for name in sorted(further):
        if present := sorted(path.name for path in fitting.glob(f"{name}-*.jar")):
            yield ok("spark jars", ", ".join(present))
        else:
            message = f"{name} is not in {fitting}: Spark could not log in by a connection of a pipeline"
            yield failed("spark jars", message, step_to_jars())


def fetch_jars(folder: Path, repository: str | None) -> Path:
    """Fetch the jars for the installed PySpark into the folder of its version in ``folder``, and return that.

    Quick when they are there. ``repository``: the address of another repository than Maven Central. Raises
    ``ConfigurationError`` for a PySpark without known jars, ``WorkFailed`` for files that do not come, or are others.
    """
    problem = _without_jars()
    if problem is not None:
        raise ConfigurationError(problem, next_step=step_to_jars())
    jars, home = wanted_jars(), folder / version("pyspark")
    if {path.name for path in home.glob("*")} == {jar.file_name for jar in jars} and all(
        jar.is_in(home) for jar in jars
    ):
        return home
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="fetched-", dir=folder) as scratch:
        fetched = Path(scratch, home.name)
        fetched.mkdir()
        _retrieve(jars, fetched, Path(scratch), repository)
        shutil.rmtree(home, ignore_errors=True)
        fetched.rename(home)
    return home


def _retrieve(jars: list[Jar], fetched: Path, scratch: Path, repository: str | None) -> None:
    """Have the Ivy that comes with PySpark fetch just these jars; Maven is not needed."""
    dependencies = "".join(
        f"<dependency org={quoteattr(jar.organisation)} name={quoteattr(jar.name)} rev={quoteattr(jar.revision)} "
        f'transitive="false" conf="default->*">{_artifact(jar)}</dependency>'
        for jar in jars
    )
    module, settings = scratch / "ivy.xml", scratch / "settings.xml"
    module.write_text(MODULE.format(dependencies))
    settings.write_text(SETTINGS.format(root=f" root={quoteattr(repository)}" if repository else ""))
    spark = find_spec("pyspark")
    [ivy] = Path(str(spark and spark.origin)).parent.glob("jars/ivy-*.jar")
    command = [
        *(java_command(), "-jar", str(ivy), "-warn", "-settings", str(settings), "-cache", str(scratch / "cache")),
        *(
            "-ivy",
            str(module),
            "-types",
            "jar",
            "bundle",
            "-retrieve",
            f"{fetched}/[artifact]-[revision](-[classifier]).[ext]",
        ),
    ]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except OSError as error:
        raise WorkFailed(f"Java does not run: {error}", next_step="tidemark doctor checks Java") from error
    missing = [jar.file_name for jar in jars if not (fetched / jar.file_name).exists()]
    if missing:
        lines = [line.strip(": \t") for line in done.stdout.splitlines() if line.strip(":. \t")]
        raise WorkFailed(
            f"{', '.join(missing)} could not be fetched: {' | '.join(lines[-3:])[-500:]}",
            next_step="check the network; behind a proxy set JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=.. "
            "-Dhttps.proxyPort=..', or name a repository of your own: --repository https://..",
        )
    others = [jar.file_name for jar in jars if not jar.is_in(fetched)]
    if others:
        raise WorkFailed(
            f"{', '.join(others)} came with another content than the published one; nothing was kept",
            next_step="check the repository that it came from",
        )


def _artifact(jar: Jar) -> str:
    """Return the file of a module that has several."""
    name = f"<artifact name={quoteattr(jar.name)} type='jar' ext='jar' m:classifier={quoteattr(jar.classifier)}/>"
    return name if jar.classifier else ""
