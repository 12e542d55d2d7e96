"""Chooses compilers and garbage collector of a driver's JVM on this machine, where nobody else has."""

import os
import re
from pathlib import Path

# Java's second compiler takes longer for a method than a short job uses it. Up to a million records the job is quicker
# without it; with more, when only what is called ten times as often as by Java's own limits goes to it.
ONE_COMPILER, FEW_RECORDS = "-XX:TieredStopAtLevel=1", 1_000_000
LATE_COMPILER = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
# The collector for few cores: no threads beside those of the tasks, and less memory. Many cores would wait for it.
SERIAL, FEW_CORES = "-XX:+UseSerialGC", 4
# Its space for new objects. A record is garbage soon, so more space is only more memory; by default a third is new.
YOUNG_MIB = 32  # for each core
# Java reads these beside its command line, and Spark's scripts the last one.
VARIABLES = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
_COMPILERS = re.compile(r"-XX:[+-]?Tier|-Xint\b")
_COLLECTOR = re.compile(r"-XX:[+]Use\w+GC\b")  # Java does not start with two
_YOUNG = re.compile(r"-Xmn|-XX:(Max)?New(Size|Ratio)")
_ARCHIVE = re.compile(r"-XX:SharedArchiveFile|-XX:ArchiveClassesAtExit|-Xshare")
NO_WORD = "-Xlog:cds*=off"  # Java would tell on standard output that an archive does not fit


def java_options(given: str, records: int | None, classes: Path | None = None) -> str:
    """``given``, the options of the user, after ours where they leave a choice.

    ``records``: how many the JVM's first job reads at most; None: it stays up for many jobs. ``classes``: an archive of
    the classes that it will load, if there is one.
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
