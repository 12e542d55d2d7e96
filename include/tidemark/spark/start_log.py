"""Finds why Spark did not start, in the log of its JVM and in the limits of this process, and says what to do."""

import re
import resource
from pathlib import Path

from tidemark.errors import WorkFailed
from tidemark.spark.masters import KUBERNETES, YARN

LINES = 3
LINE_LENGTH = 240
TAIL = 100_000  # bytes; a JVM writes less before it gives up, with its settings and stack traces
# An error of Java, of its launcher or of the shell. Frames of a stack do not match.
_ERROR = re.compile(
    r"\b\w*(?:Exception|Error)\b|\berror\b|\bfail|\bcannot\b|could not|not found|insufficient", re.IGNORECASE
)
_CONSEQUENCE = "Error initializing SparkContext"  # Spark logs it behind each cause
_FRAME = re.compile(r"^\s*(?:at [\w$.<>/@-]+\(|\.\.\. \d+ more|#?\s*$)")
_PREFIX = re.compile(
    r"^(?:\d[\d/-]+[ T][\d:.,]+\s+)?(?:Exception in thread \"[^\"]*\"\s+|Caused by:\s+|(?:WARN|ERROR|FATAL)\s+|#\s+)?"
)
_SECRET = re.compile(
    r"((?:secret|password|passwd|token|access[._-]?key|private[._-]?key|credential)[\w.-]*[\"']?\s*[=:,]\s*)"
    r"(\"[^\"]*\"|'[^']*'|[^\s,;)]+)",
    re.IGNORECASE,
)
_USER_OF_ADDRESS = re.compile(r"(?<=://)[^/\s@]+(?=@)")

# Settings of a site that keep Spark from starting, and the remedy. The first pattern that the log matches counts.
_FILES = "allow more open files: ulimit -n 4096 (systemd: LimitNOFILE)"
_MEMORY = (
    "let Java have memory and threads: ulimit -v unlimited and ulimit -u 4096 (in a container: its limits), or "
    "lower spark.driver.memory"
)
_LOCAL = (
    "spark-defaults.conf (in SPARK_CONF_DIR) is that of a cluster: take spark.master and spark.submit.deployMode "
    "out of it, or set SPARK_CONF_DIR to an empty folder"
)
_STEPS = {
    "UnknownHost|Name or service not known|Temporary failure in name resolution": (
        "give the name of this machine an address in /etc/hosts or in DNS (getent hosts $(hostname) must answer), or "
        "set SPARK_LOCAL_IP=127.0.0.1 and SPARK_LOCAL_HOSTNAME=localhost"
    ),
    "too many open files|EMFILE": _FILES,
    "object heap|Cannot allocate memory|insufficient memory|Not enough space|OutOfMemory|metaspace|class space"
    "|create .{0,20}thread|pthread_create|commit_memory": _MEMORY,
    r"deploy ?mode|\byarn\b|HADOOP_CONF_DIR|YARN_CONF_DIR|kubernetes": _LOCAL,
}


# A lower limit keeps a JVM of Spark from starting. Java often names another cause: a file that it could not open, or a
# connection that has ended. Java raises the soft limit of files to the hard one.
_LIMITS = (
    (resource.RLIMIT_NOFILE, 1, 1024, "may open {} files (ulimit -n)", _FILES),
    (resource.RLIMIT_NPROC, 0, 512, "may have {} processes and threads (ulimit -u)", _MEMORY),
    (resource.RLIMIT_AS, 0, 16 << 30, "may have {} bytes of address space (ulimit -v)", _MEMORY),
)


def size_of(log: Path | None) -> int:
    """Return the length of a log before Spark starts: its present lines belong to other starts."""
    return log.stat().st_size if log is not None and log.exists() else 0


def written_since(log: Path | None, size: int) -> str:
    """Return the end of what was written to a log since it had this size; an empty text if it cannot be read."""
    if log is None:
        return ""
    try:
        with log.open("rb") as file:
            end = file.seek(0, 2)
            file.seek(max(size, end - TAIL))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def last_errors(text: str, besides: str = "") -> list[str]:
    """Return the last lines of a log that name an error, without stacks, secrets and characters that a terminal would
    obey.

    Left out are lines that repeat ``besides``, or say only that Spark did not start: the cause stands before them.
    """
    lines: list[str] = []
    for line in reversed(text.splitlines()):
        if _FRAME.match(line) or not _ERROR.search(line) or _CONSEQUENCE in line:
            continue
        shown = "".join(character for character in _PREFIX.sub("", line).strip() if character.isprintable())
        shown = _USER_OF_ADDRESS.sub("***", _SECRET.sub(r"\1***", shown))
        shown = shown if len(shown) <= LINE_LENGTH else f"{shown[:LINE_LENGTH]}.."
        if shown not in (*lines, besides):
            lines.insert(0, shown)
        if len(lines) == LINES:
            break
    return lines


def step_for(text: str) -> str:
    """Return the next step for what a log or a message says; an empty text if it is not known."""
    return next((step for words, step in _STEPS.items() if re.search(words, text, re.IGNORECASE)), "")


def narrow_limits() -> tuple[list[str], str]:
    """Return the limits of this process, and so of its JVM, that are too low for Spark, and how to raise the first of
    them.
    """
    narrow = [
        (what.format(value), step)
        for limit, which, enough, what, step in _LIMITS
        if (value := resource.getrlimit(limit)[which]) != resource.RLIM_INFINITY and value < enough
    ]
    return [what for what, _ in narrow], narrow[0][1] if narrow else ""


def not_started(error: Exception, master: str, log: Path | None, written: str) -> WorkFailed:
    """Return the error in the words of the JVM: from its answer, and from its log since then."""
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    jvm_message = next((line for line in lines if line.startswith(": ")), lines[0]).removeprefix(": ").strip()
    told = last_errors(written, jvm_message)
    in_log = f"; its log: {' | '.join(told)}" if told else ""
    limits, higher = narrow_limits()
    of_limits = f"; this process {' and '.join(limits)}" if limits else ""
    step = step_for("\n".join([jvm_message, *told])) or higher
    if step == _LOCAL and master.startswith((KUBERNETES, YARN)):
        step = higher
    where = f"tail -n 50 {log}; " if log else ""
    return WorkFailed(
        f"Spark did not start: {jvm_message[:300]}{in_log}{of_limits}",
        next_step=f"{f'{step}; ' if step else ''}{where}tidemark doctor checks Java, jars and master",
        master=master,
    )
