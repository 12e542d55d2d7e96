"""Finds Java, and chooses compilers and garbage collector of a driver's JVM here, where nobody else has."""

import os
import re
import shutil
from pathlib import Path

# Java's second compiler takes longer for a method than a short job uses the method. Up to a million records, a job is
# faster without it. With more records, it is faster if this compiler gets only methods that are called ten times as
# often as Java's own limits say.
ONE_COMPILER, FEW_RECORDS = "-XX:TieredStopAtLevel=1", 1_000_000
LATE_COMPILER = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
# The collector for few cores: no threads beside those of the tasks, and less memory. With many cores, tasks would wait.
SERIAL, FEW_CORES = "-XX:+UseSerialGC", 4
# Its space for new objects. A record becomes garbage soon, so more space only costs memory; Java's default is a third.
YOUNG_MIB = 32  # for each core
# Java reads these beside its command line; Spark's scripts read the last one.
VARIABLES = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
_COMPILERS = re.compile(r"-XX:[+-]?Tier|-Xint\b")
_COLLECTOR = re.compile(r"-XX:[+]Use\w+GC\b")  # Java does not start with two collectors
_YOUNG = re.compile(r"-Xmn|-XX:(Max)?New(Size|Ratio)")
_ARCHIVE = re.compile(r"-XX:SharedArchiveFile|-XX:ArchiveClassesAtExit|-Xshare")
NO_WORD = "-Xlog:cds*=off"  # otherwise Java says on standard output that an archive does not fit


def java_command() -> str:
    """The `java` of JAVA_HOME, or of the PATH."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else shutil.which("java") or "java"


def java_options(given: str, records: int | None, classes: Path | None = None) -> str:
    """Return the options of Java: ours, if the user has not chosen otherwise, then ``given``, those of the user.

    ``records`` is the largest number that the JVM's first job reads; None: the JVM stays up for many jobs. ``classes``
    is an archive of the classes that it will load, if there is one.
    """
    chosen = " ".join([given, *(os.environ.get(name, "") for name in VARIABLES)])
    words = []
    if not _COMPILERS.search(chosen):
        words.append(ONE_COMPILER if records is not None and records <= FEW_RECORDS else LATE_COMPILER)
    cores = os.cpu_count() or 1
    if cores <= FEW_CORES and not _COLLECTOR.search(chosen):
        words.append(SERIAL)
        if not _YOUNG.search(chosen):
            words.append(f"-Xmn{YOUNG_MIB * cores}m")
    if classes is not None and not _ARCHIVE.search(chosen):
        words.append(f"-XX:SharedArchiveFile='{classes}' {NO_WORD}")
    return " ".join(filter(None, [*words, given]))
