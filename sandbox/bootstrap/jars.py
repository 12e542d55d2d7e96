"""Jars that PySpark lacks: Kafka, its connector, readers of Iceberg tables, Flink; in `<state>/jars/<set>/`.

The connector for a PySpark lies in `<state>/jars/spark/<version>`: `<state>/jars/spark` is TIDEMARK_SPARK_JARS.

The Apache Ivy of PySpark fetches them, so Maven is not needed. `jars/jars.lock` names every file with its SHA-256; the
connectors are in `include/tidemark/spark/jars.txt`. Four processes fetch just these files, without resolving
dependencies: 4 s instead of 53. A file that differs from the lock is an error. `jars/ivy.xml` names the direct
dependencies; `relock` writes the lock files from it.
"""

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Self
from xml.sax.saxutils import quoteattr

from sandbox.bootstrap.apart import packages_of
from sandbox.bootstrap.checkout import CHECKOUT
from sandbox.errors import SandboxFailed

LOCK = CHECKOUT / "jars" / "jars.lock"
# Spark's Kafka connector for each PySpark that Tidemark is run with, in sets `spark-VERSION`: the package has it, too.
LOCK_OF_SPARK = CHECKOUT / "include" / "tidemark" / "spark" / "jars.txt"
# Sets that users of a provider need.
OF_PROVIDERS = {"msk": CHECKOUT / "include" / "tidemark" / "providers" / "msk" / "jars.txt"}
SPARK = "spark-"
# On 2 cores four take half the time of two, and eight are not faster: the rest is the start of the JVMs. A few jars
# come as soon by one.
PROCESSES, FEW = 4, 8


@dataclass(frozen=True, order=True)
class Jar:
    """One locked file: ``SET ORGANISATION NAME REVISION SHA256 [CLASSIFIER]`` on a line of a lock."""

    set: str
    organisation: str
    name: str
    revision: str
    sha256: str
    classifier: str = ""

    @property
    def full_name(self) -> str:
        """Return name, revision and classifier: the name of its file without the ending."""
        return "-".join(filter(None, (self.name, self.revision, self.classifier)))

    @property
    def file_name(self) -> str:
        """Return the name below ``<state>/jars/<set>/``."""
        return f"{self.full_name}.jar"

    @classmethod
    def parse(cls, line: str) -> Self:
        """Read one line of the lock. Raises ``SandboxFailed`` unless it has five or six words."""
        words = line.split()
        if len(words) not in (5, 6):
            raise SandboxFailed(f"a lock of jars has a line that names no jar: {line}", next_step="make lock")
        return cls(*words)

    def __str__(self) -> str:
        return f"{self.set} {self.organisation} {self.name} {self.revision} {self.sha256} {self.classifier}".rstrip()


def locked() -> list[Jar]:
    lines = [line for path in (LOCK, LOCK_OF_SPARK, *OF_PROVIDERS.values()) for line in path.read_text().splitlines()]
    return [Jar.parse(line) for line in lines if line and not line.startswith("#")]


def sparks() -> list[str]:
    """The versions of PySpark that have a set."""
    return sorted({jar.set.removeprefix(SPARK) for jar in locked() if jar.set.startswith(SPARK)})


def spark_set() -> str:
    """The set with the connector for the PySpark that this process has."""
    return f"{SPARK}{version('pyspark')}"


def folder_of(name: str, state: Path) -> Path:
    """The folder with the jars of a set."""
    return state / "jars" / (f"spark/{name.removeprefix(SPARK)}" if name.startswith(SPARK) else name)


def ensure(state: Path, sets: Sequence[str] = ()) -> None:
    """Fetch missing jars into ``<state>/jars`` and remove jars that the lock files do not name.

    Without ``sets`` those of every checkout; who needs another set, a test or `make bench`, fetches it.
    """
    sets = sets or ("kafka", spark_set())
    jars = [jar for jar in locked() if jar.set in sets]
    missing = [jar for jar in jars if not (folder_of(jar.set, state) / jar.file_name).exists()]
    if missing:
        _fetch(missing, state)
    for name in sets:
        wanted = {jar.file_name for jar in jars if jar.set == name}
        for path in folder_of(name, state).glob("*"):
            if path.name not in wanted:
                path.unlink()


def fetch_for_tests(state: Path, *names: str) -> list[Path]:
    """Return the folders of sets that only tests need. Fetch what is missing, for one process at a time."""
    with (_made(state) / "jars-for-tests.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ensure(state, names)
    return [folder_of(name, state) for name in names]


def fetch_file(jar: Jar, state: Path, ending: str) -> Path:
    """Return the locked file of a module that is not a jar (``tar.gz``, ``so``), below ``state``. Fetch it if it is
    missing.
    """
    home = _made(state / "jars" / "files") / f"{jar.full_name}.{ending}"
    if home.exists():
        return home
    with tempfile.TemporaryDirectory(dir=_made(state)) as scratch:
        module = Path(scratch, "ivy.xml")
        module.write_text(_module([jar], ending))
        _run_ivy(_command(module, f"{scratch}/[artifact].[ext]", types=(ending,)))
        _keep(jar, Path(scratch, f"{jar.name}.{ending}"), home)
    return home


def relock(state: Path) -> None:
    """Write the lock files from `ivy.xml`. Resolves all dependencies: one minute with an empty cache."""
    header = [line for line in LOCK.read_text().splitlines() if line.startswith("#")] if LOCK.exists() else []
    others = [f"{SPARK}{each}" for each in sparks() if f"{SPARK}{each}" != spark_set()]
    folders = {spark_set(): pyspark_jars(), **{name: packages_of(name, state) / "pyspark" / "jars" for name in others}}
    shipped = {name: {path.name for path in folder.glob("*.jar")} for name, folder in folders.items()}
    resolved: list[Jar] = []
    with tempfile.TemporaryDirectory(dir=_made(state)) as scratch:
        pattern = f"{scratch}/[conf]/[organisation]__[artifact]__[revision](__[classifier]).[ext]"
        module = shutil.copy(CHECKOUT / "jars" / "ivy.xml", _made(Path(scratch, "resolved")))
        _run_ivy(_command(Path(module), pattern, "jars-with-poms"))
        for path in Path(scratch).glob("*/*.jar"):
            organisation, name, revision, *classifier = path.stem.split("__")
            jar = Jar(path.parent.name, organisation, name, revision, _sha256(path), *classifier)
            # Spark has its own copy of the other jars, and two versions of one class must not meet.
            if jar.file_name not in shipped.get(jar.set, ()):
                resolved.append(jar)
    lines = {
        path: [*above]
        for path, above in ((LOCK, header), *((path, []) for path in (LOCK_OF_SPARK, *OF_PROVIDERS.values())))
    }
    for jar in sorted(resolved):
        lines[LOCK_OF_SPARK if jar.set.startswith(SPARK) else OF_PROVIDERS.get(jar.set, LOCK)].append(str(jar))
    for path, text in lines.items():
        path.write_text("\n".join(text) + "\n")


def parts(jars: Iterable[Jar]) -> list[tuple[str, list[Jar]]]:
    """Divide jars among processes of Ivy, each with the name of its cache.

    Of two revisions of a module, which two sets may have, a process would fetch the newer one only. Ivy remembers only
    the first file of a module, and finds no other one in the same cache.
    """
    files = {(jar.organisation, jar.name, jar.revision, jar.classifier): jar for jar in jars}  # whatever sets have it
    several = {jar.name for jar in files.values() if jar.classifier}
    alone = [jar for _, jar in sorted(files.items()) if jar.name not in several]  # revisions stand side by side
    revisions = Counter((jar.organisation, jar.name) for jar in alone)
    processes = max([min(PROCESSES, -(-len(alone) // FEW)), *revisions.values()])
    divided = [("jars", alone[number::processes]) for number in range(processes)]
    return divided + [(f"jars-{jar.full_name}", [jar]) for jar in files.values() if jar.name in several]


def _fetch(jars: list[Jar], state: Path) -> None:
    with tempfile.TemporaryDirectory(dir=_made(state)) as scratch:
        running = []
        for number, (cache, part) in enumerate(parts(jars)):
            module = _made(Path(scratch, f"part{number}")) / "ivy.xml"
            module.write_text(_module(part))
            pattern = f"{scratch}/[organisation]__[artifact]__[revision](__[classifier]).[ext]"
            command = _command(module, pattern, cache)
            running.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        for process, output in [(process, process.communicate()[0]) for process in running]:
            _check(process.returncode, output)
        for jar in jars:
            words = (jar.organisation, jar.name, jar.revision, jar.classifier)
            path = Path(scratch, f"{'__'.join(filter(None, words))}.jar")
            _keep(jar, path, _made(folder_of(jar.set, state)) / jar.file_name)


def _keep(jar: Jar, fetched: Path, home: Path) -> None:
    """Put a fetched file into its place. Raises ``SandboxFailed`` if it is not the locked file."""
    actual = _sha256(fetched)
    if actual != jar.sha256:
        raise SandboxFailed(
            f"{home.name} is not the locked file: its SHA-256 is {actual}, not {jar.sha256}",
            next_step=f"rm -r {_cache('') / 'jars*' / jar.organisation / jar.name} and try again",
        )
    shutil.copyfile(fetched, home.with_suffix(".part"))
    home.with_suffix(".part").rename(home)


def _module(jars: Iterable[Jar], ending: str = "jar") -> str:
    lines = []
    for jar in jars:
        module = f"org={quoteattr(jar.organisation)} name={quoteattr(jar.name)} rev={quoteattr(jar.revision)}"
        artifact = f'name={quoteattr(jar.name)} type="{ending}" ext="{ending}" m:classifier={quoteattr(jar.classifier)}'
        inner = f"<artifact {artifact}/>" if jar.classifier or ending != "jar" else ""
        lines.append(f'<dependency {module} transitive="false" conf="default->*">{inner}</dependency>')
    maven = 'xmlns:m="http://ant.apache.org/ivy/maven"'
    head = f'<ivy-module version="2.0" {maven}><info organisation="tidemark" module="locked"/>'
    configurations = '<configurations><conf name="default"/></configurations>'
    return "\n".join([head, configurations, "<dependencies>", *lines, "</dependencies></ivy-module>"])


def _command(module: Path, pattern: str, cache: str = "jars", types: Sequence[str] = ("jar", "bundle")) -> list[str]:
    ivy = next(pyspark_jars().glob("ivy-*.jar"))
    properties = {
        "ivy.cache.dir": _cache(cache),
        "tidemark.usepoms": str(cache == "jars-with-poms").lower(),
        "tidemark.scratch": module.parent,
    }
    return [
        *(java(), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
        *(f"-D{name}={value}" for name, value in properties.items()),
        *("-jar", str(ivy), "-settings", str(CHECKOUT / "jars" / "settings.xml"), "-ivy", str(module)),
        *("-retrieve", pattern, "-types", *types, "-warn"),
    ]


def java() -> str:
    """Return the `java` of JAVA_HOME, or of the PATH."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else "java"


def _run_ivy(command: list[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    _check(done.returncode, done.stdout)


def _check(code: int, output: str) -> None:
    if code != 0 or "UNRESOLVED DEPENDENCIES" in output:
        what = f"jars could not be fetched:\n{output[-2000:]}"
        raise SandboxFailed(what, next_step="check the network (a proxy?) and run the same command again")


def _cache(name: str) -> Path:
    # Separate caches: a module that was fetched without its pom would look like a module without dependencies.
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidemark" / name


def pyspark_jars() -> Path:
    """Return the folder of the jars that come with PySpark."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SandboxFailed("PySpark is not installed", next_step="make setup")
    return Path(spec.origin).parent / "jars"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
