"""This machine: Python, Java, packages, free disk space."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tidemark.doctor.checks import Check
from tidemark.environment import Environment
from tidemark.kinds import KINDS, PROVIDERS
from tidemark.model.findings import Finding, disk_space, failed, ok

PYTHON = ((3, 11), (3, 14))  # [first, end), as requires-python in pyproject.toml
JAVA = ("17", "21")
VECTORS = "jdk.incubator.vector"  # Spark loads this module when it starts, and some small Java runtimes lack it
JAVA_TIMEOUT_S = 10


def checks(environment: Environment) -> list[Check]:
    return [
        Check("python", python),
        Check("java", java, 2 * JAVA_TIMEOUT_S + 1),
        Check("pyspark", packages),
        Check("providers", providers),
        Check("home", lambda: disk_space("home", environment.home)),
    ]


def python() -> Iterator[Finding]:
    version_text = sys.version.split()[0]
    if PYTHON[0] <= sys.version_info[:2] < PYTHON[1]:
        yield ok("python", version_text)
    else:
        yield failed("python", f"{version_text} is not supported", "use Python 3.11, 3.12 or 3.13")


def providers() -> Iterator[Finding]:
    """Import every module of the kinds that installed packages bring, and report the packages that cannot be used."""
    for name, distribution in PROVIDERS.distributions.items():
        provider = PROVIDERS.by_name[name]
        for seam, kind in provider.kinds():
            for module in KINDS[seam].names:
                if kind in KINDS[seam]:
                    KINDS[seam].usable(kind, module)
        if distribution.name not in PROVIDERS.broken:
            brought = ", ".join(f"{KINDS[seam].word} {kind}" for seam, kind in provider.kinds())
            yield ok("providers", f"{distribution.name} {distribution.version} brings: {brought}")
    for package, reason in PROVIDERS.broken.items():
        step = f"pipelines that do not use it go on; correct or update the package, or: pip uninstall {package}"
        yield failed("providers", f"{package} cannot be used: {reason}", step)


def java() -> Iterator[Finding]:
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home, "bin", "java")) if home else shutil.which("java")
    install = "install a JDK 17 or 21, and set JAVA_HOME or the PATH to it"
    if command is None or not os.access(command, os.X_OK):
        yield failed("java", f"there is no Java {f'at JAVA_HOME={home}' if home else 'on the PATH'}", install)
        return
    properties = _java(command, "-XshowSettings:properties", "-version")
    match = re.search(r"java\.specification\.version = (\S+)", properties)
    if match is None:
        yield failed("java", f"{command} does not run", install)
    elif match[1] not in JAVA:
        yield failed("java", f"{command} is Java {match[1]}; Spark runs on 17 or 21", install)
    elif VECTORS not in _java(command, "--list-modules"):
        yield failed("java", f"{command} lacks the module {VECTORS}, which Spark needs", install)
    else:
        yield ok("java", f"{match[1]} at {command}")


def _java(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=JAVA_TIMEOUT_S)
    return done.stdout + done.stderr


def packages() -> Iterator[Finding]:
    """Compare the versions of pyspark and pyspark-client: they install into the same folder, so different versions
    overwrite each other's files.
    """
    spark = version("pyspark")
    try:
        client = version("pyspark-client")
    except PackageNotFoundError:
        yield ok("pyspark", spark)
        return
    if client == spark:
        yield ok("pyspark", f"{spark}, as pyspark-client")
    else:
        yield failed(
            "pyspark",
            f"pyspark is {spark} and pyspark-client {client}; they share a folder and overwrite each other",
            f"pip install pyspark-client=={spark}, then pip install --force-reinstall --no-deps pyspark=={spark}",
        )
