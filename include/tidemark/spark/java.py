"""How the JVM of a driver on this machine compiles and collects garbage, where nobody else has chosen."""

import os
import re
from pathlib import Path

# Java's second compiler takes 8 s of processor time in a job of a thousand records. Its code saves 2 us a record, and
# only after the first million: at about four it has earned its time. A server that stays up keeps what it compiled.
ONE_COMPILER, FEW_RECORDS = "-XX:TieredStopAtLevel=1", 3_000_000
# The collector for few cores: no threads beside those of the tasks, and less memory. Many cores would wait for it.
SERIAL, FEW_CORES = "-XX:+UseSerialGC", 4
# Java reads these beside its command line, and Spark's scripts the last one.
VARIABLES = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
_COMPILERS = re.compile(r"-XX:[+-]?Tiered|-Xint\b")
_COLLECTOR = re.compile(r"-XX:[+]Use\w+GC\b")  # Java does not start with two
_ARCHIVE = re.compile(r"-XX:SharedArchiveFile|-XX:ArchiveClassesAtExit|-Xshare")
NO_WORD = "-Xlog:cds*=off"  # Java would tell on standard output that an archive does not fit


def java_options(given: str, records: int | None, classes: Path | None = None) -> str:
    """``given``, the options of the user, after ours where they leave a choice.

    ``records``: how many the JVM's first job reads at most; None: it stays up for many jobs. ``classes``: an archive of
    the classes that it will load, if there is one.
    """
    chosen = " ".join([given, *(os.environ.get(name, "") for name in VARIABLES)])
    words = []
    if records is not None and records <= FEW_RECORDS and not _COMPILERS.search(chosen):
        words.append(ONE_COMPILER)
    if (os.cpu_count() or 1) <= FEW_CORES and not _COLLECTOR.search(chosen):
        words.append(SERIAL)
    if classes is not None and not _ARCHIVE.search(chosen):
        words.append(f"-XX:SharedArchiveFile='{classes}' {NO_WORD}")
    return " ".join(filter(None, [*words, given]))
