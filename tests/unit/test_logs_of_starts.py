"""Why Spark did not start, in the words of its log, and the way out."""

import resource
from pathlib import Path

import pytest

from tidemark.spark.start_log import LINE_LENGTH, LINES, last_errors, not_started, size_of, step_for, written_since

UNKNOWN_HOST = """\
26/11/29 02:10:11 INFO SparkContext: Running Spark version 4.0.0
Exception in thread "main" java.lang.ExceptionInInitializerError
\tat org.apache.spark.util.Utils$.localHostName(Utils.scala:974)
Caused by: java.net.UnknownHostException: etl-7: etl-7: Name or service not known
\tat java.base/java.net.InetAddress.getLocalHost(InetAddress.java:1671)
\t... 9 more
"""
CLUSTER = """\
Exception in thread "main" org.apache.spark.SparkException: Cluster deploy mode is not compatible with master "local"
\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1066)
"""
YARN = """\
Exception in thread "main" org.apache.spark.SparkException: When running with master 'yarn' either HADOOP_CONF_DIR or \
YARN_CONF_DIR must be set in the environment.
"""
FEW_FILES = """\
Error: A JNI error has occurred, please check your installation and try again
Caused by: java.nio.file.FileSystemException: /opt/jars/a.jar: Too many open files
"""
LITTLE_MEMORY = """\
Error occurred during initialization of VM
Could not reserve enough space for 4194304KB object heap
"""
NO_THREADS = """\
[0.012s][warning][os,thread] Failed to start thread "GC Thread#0" - pthread_create failed (EAGAIN) for attributes
Error occurred during initialization of VM
Cannot create worker GC thread. Out of system resources.
"""


NO_RIGHT = """\
26/11/30 16:41:52 ERROR ExecutorPodsAllocator: Failed to create executor pod 6. Total failures: 6
io.fabric8.kubernetes.client.KubernetesClientException: POST at: http://k8s/pods. Message: pods is forbidden
\tat io.fabric8.kubernetes.client.dsl.internal.OperationSupport.waitForResult(OperationSupport.java:500)
26/11/30 16:41:52 ERROR ExecutorPodsLifecycleManager: Max number of executor failures (4) reached
26/11/30 16:41:52 ERROR SparkContext: Error initializing SparkContext.
java.lang.IllegalStateException: Spark context stopped while waiting for backend
"""  # of Spark 4.2


@pytest.mark.parametrize(
    ("log", "cause", "step"),
    [
        (UNKNOWN_HOST, "java.net.UnknownHostException: etl-7: etl-7: Name or service not known", "SPARK_LOCAL_IP"),
        (CLUSTER, "Cluster deploy mode is not compatible with master", "SPARK_CONF_DIR"),
        (YARN, "When running with master 'yarn' either HADOOP_CONF_DIR", "SPARK_CONF_DIR"),
        (FEW_FILES, "Too many open files", "ulimit -n"),
        (LITTLE_MEMORY, "Could not reserve enough space for 4194304KB object heap", "ulimit -v"),
        (NO_THREADS, "pthread_create failed (EAGAIN)", "ulimit -u"),
        ("bash: /opt/java/bin/java: cannot execute: required file not found\n", "cannot execute", ""),
        ("26/11/29 02:10:11 INFO SparkContext: Running Spark version 4.0.0\n", "", ""),
    ],
)
def test_what_the_log_of_a_start_tells_stands_in_the_message_with_a_way_out(
    tmp_path: Path, log: str, cause: str, step: str
) -> None:
    file = tmp_path / "spark.log"
    file.write_text("Caused by: java.lang.Error: of another start, too many open files\n")
    size = size_of(file)
    with file.open("a") as opened:
        opened.write(log)
    error = not_started(
        RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited"), "local[2]", file, written_since(file, size)
    )
    assert error.what.startswith("Spark did not start: [JAVA_GATEWAY_EXITED]")
    assert cause in error.what
    assert "of another start" not in error.what
    assert (f"tail -n 50 {file}" in error.next_step, step in error.next_step) == (True, True)
    assert (step_for(log) != "") is (step != "")


@pytest.mark.parametrize(
    ("line", "hidden"),
    [
        ("Error: spark.ssl.keyPassword=s3cret is refused", "s3cret"),
        ('error in KafkaClient: password="s3cret with words"; done', "s3cret"),
        ("failed: https://user:s3cret@host/repository", "s3cret"),
        ("Error: fs.s3a.secret.key: s3cret", "s3cret"),
        ("Error \x1b[31mred\x1b[0m \u202eturned", "\x1b"),
        ("Error \x1b[31mred\x1b[0m \u202eturned", "\u202e"),
    ],
)
def test_no_secret_and_nothing_that_a_terminal_obeys_is_quoted(line: str, hidden: str) -> None:
    [told] = last_errors(line)
    assert hidden not in told


def test_few_short_lines_are_quoted_each_once() -> None:
    told = last_errors("".join(f"Error {number % 7} {'x' * 1000}\n" for number in range(1000)))
    assert len(told) == LINES == len(set(told))
    assert max(map(len, told)) <= LINE_LENGTH + 2
    assert told[-1].startswith(f"Error {999 % 7}")


@pytest.mark.parametrize(
    ("limit", "values", "told", "step"),
    [
        (resource.RLIMIT_NOFILE, (200, 200), "this process may open 200 files (ulimit -n)", "ulimit -n 4096"),
        (resource.RLIMIT_NOFILE, (200, 1 << 20), "", ""),
        (resource.RLIMIT_AS, (3 << 30, 3 << 30), "may have 3221225472 bytes of address space", "ulimit -v unlimited"),
        (resource.RLIMIT_NPROC, (400, 400), "may have 400 processes and threads (ulimit -u)", "ulimit -u 4096"),
    ],
)
def test_a_limit_of_the_process_is_told_where_java_names_another_cause(
    monkeypatch: pytest.MonkeyPatch, limit: int, values: tuple[int, int], told: str, step: str
) -> None:
    endless = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda asked: values if asked == limit else endless)
    error = not_started(
        RuntimeError("gone"), "local[2]", None, "java.lang.InternalError: Error loading java.security file\n"
    )
    assert (told in error.what, step in error.next_step) == (True, True)
    assert ("this process" in error.what) is bool(told)


def test_without_a_log_of_its_own_the_message_is_what_the_jvm_has_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert written_since(None, size_of(None)) == written_since(tmp_path / "none.log", 0) == ""
    answer = ": java.net.UnknownHostException: etl-7\n\tat java.base/java.net.InetAddress.getLocalHost"
    error = not_started(RuntimeError(f"An error occurred\n{answer}"), "local[2]", None, "")
    assert error.what == "Spark did not start: java.net.UnknownHostException: etl-7"
    assert "SPARK_LOCAL_HOSTNAME" in error.next_step


def test_the_cause_is_told_and_not_what_follows_from_it_or_is_told_already() -> None:
    message = "java.lang.IllegalStateException: Spark context stopped while waiting for backend"
    error = not_started(RuntimeError(f"An error occurred\n: {message}"), "k8s://kube:443", None, NO_RIGHT)
    assert "Message: pods is forbidden" in error.what
    assert error.what.count("waiting for backend") == 1
    assert "Error initializing" not in error.what
