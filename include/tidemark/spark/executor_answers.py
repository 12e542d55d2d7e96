"""Asks executors, or the Python of a server, for ``tidemark doctor``, and compares their answers with the driver's."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from tidemark.model.findings import Finding, clock, failed, warning
from tidemark.pipeline.settings import Pipeline
from tidemark.spark.probe import Questions
from tidemark.version import VERSION


def questions_of(pipelines: Sequence[Pipeline], addresses: Sequence[str], nonces: Sequence[Path]) -> Questions:
    sinks = [sink for pipeline in pipelines for sink in pipeline.sinks]
    targets = {(sink.kind, conn_id) for sink in sinks for conn_id in sink.connections()}
    of_registries = [pipeline.decode.connections() for pipeline in pipelines]
    connections = sorted({conn_id for _, conn_id in targets}.union(*of_registries))
    return Questions(connections, sorted(targets), [str(nonce) for nonce in nonces], list(addresses))


def roots_of(pipelines: Sequence[Pipeline]) -> list[str]:
    return sorted({root for pipeline in pipelines for sink in pipeline.sinks for root in sink.folders()})


@contextmanager
def nonce_files(pipelines: Sequence[Pipeline]) -> Iterator[list[Path]]:
    """Create a file with a random name in each local root: an executor that sees the file sees the same folder.

    A root in which this process cannot write has no such file: the check of the sink reports it.
    """
    files = [Path(root, f".doctor-{uuid4().hex}") for root in roots_of(pipelines) if Path(root).is_dir()]
    try:
        for file in files:
            with suppress(OSError):
                file.touch()
        yield [file for file in files if file.exists()]
    finally:
        for file in files:
            with suppress(OSError):
                file.unlink()


def findings_of(answer: dict[str, Any], driver: dict[str, Any]) -> Iterator[Finding]:
    """Compare an executor with the driver; ``answer`` has the keys of ``probe.look``, and ``ahead`` in seconds;
    ``driver`` has those of ``probe.versions``.
    """
    where = f"executor {answer['host']} {answer['folder']}"
    ours = {name: driver["packages"][name] for name in ("pyspark", "pyarrow")}
    if answer["python"] != driver["python"]:
        message = f"Python {answer['python']}, the driver has {driver['python']}"
        yield warning(
            where,
            message,
            "set PYSPARK_PYTHON to a Python of the same minor version, or better the same patch version",
        )
    for name, wanted in ours.items():
        if (has := answer["packages"][name]) is None:
            yield failed(where, f"its Python has no {name}", f"install {name}=={wanted}, or set PYSPARK_PYTHON")
        elif has != wanted:
            yield warning(where, f"{name} {has}, the driver has {wanted}", f"install {name}=={wanted} there")
    if not answer["tidemark"].startswith(f"{VERSION} "):
        yield failed(
            where, f"tidemark {answer['tidemark']}, here {VERSION}", "remove the Tidemark that is installed there"
        )
    for conn_id in answer["missing"]:
        yield failed(
            where,
            f"it does not find the connection {conn_id}",
            f"set AIRFLOW_CONN_{conn_id.upper()} in the executors' environment (docs/clusters.md), never in properties",
        )
    for message in answer["unreachable"].values():
        yield failed(where, message, "let the workers connect to the target")
    for nonce in answer["unseen"]:
        root = Path(nonce).parent
        yield failed(
            where, f"it does not see what this machine writes to {root}", "mount the same folder on all machines"
        )
    for nonce in set(answer["read_only"]) - set(answer["unseen"]):
        yield failed(where, f"its user may not write to {Path(nonce).parent}", "let the workers' user write there")
    for address in answer["sources"]:
        yield failed(where, f"it cannot connect to the source at {address}", "let the workers connect to this address")
    yield clock(where, "this executor", answer["ahead"])
