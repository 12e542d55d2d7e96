"""What the doctor makes of an executor's answer, compared with the driver."""

import platform
from importlib.metadata import version
from typing import Any

import pytest

import tidemark
from tidemark.model.findings import Severity
from tidemark.spark.executor_answers import findings_of
from tidemark.spark.probe import Questions, look, versions

HERE = {
    "host": "worker-1",
    "folder": "/srv/app-1/0",
    "ahead": 0.0,
    "python": platform.python_version(),
    "packages": {"pyarrow": version("pyarrow"), "pyspark": version("pyspark"), "psycopg": version("psycopg")},
    "tidemark": f"{tidemark.__version__} from /somewhere/tidemark.zip",
    "missing": [],
    "unreachable": {},
    "unseen": [],
    "read_only": [],
    "sources": [],
}


def test_an_executor_like_the_driver_is_well() -> None:
    assert {finding.severity for finding in findings_of(HERE, versions())} == {Severity.OK}


@pytest.mark.parametrize(
    ("answer", "severity", "message"),
    [({"python": "3.11.0"}, Severity.WARNING, "Python 3.11.0, the driver has"),
     ({"packages": {**HERE["packages"], "pyarrow": None}}, Severity.FAILED, "its Python has no pyarrow"),
     ({"packages": {**HERE["packages"], "pyarrow": "1.0"}}, Severity.WARNING, "pyarrow 1.0, the driver has"),
     ({"tidemark": "0.0.9 from /usr/lib"}, Severity.FAILED, "tidemark 0.0.9"),
     ({"missing": ["warehouse"]}, Severity.FAILED, "it does not find the connection warehouse"),
     ({"unreachable": {"warehouse": "cannot be reached"}}, Severity.FAILED, "cannot be reached"),
     ({"unseen": ["/lake/.doctor-1"], "read_only": ["/lake/.doctor-1"]}, Severity.FAILED, "writes to /lake"),
     ({"read_only": ["/lake/.doctor-1"]}, Severity.FAILED, "may not write to /lake"),
     ({"sources": ["broker:9092"]}, Severity.FAILED, "the source at broker:9092"),
     ({"ahead": 90.0}, Severity.WARNING, "90 s ahead of")],
)  # fmt: skip
def test_a_difference_is_one_finding_that_names_the_executor(
    answer: dict[str, Any], severity: Severity, message: str
) -> None:
    [difference] = [
        finding for finding in findings_of({**HERE, **answer}, versions()) if finding.severity is not Severity.OK
    ]
    assert (difference.severity, message in difference.message) == (severity, True), difference
    assert difference.check == "executor worker-1 /srv/app-1/0"
    assert difference.next_step


def test_an_executor_tells_what_it_lacks_and_no_secret(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path_factory.mktemp("lake") / ".doctor-1"
    seen.touch()
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", "postgresql://u:canary@127.0.0.1:1/x")
    monkeypatch.setattr("tidemark.spark.probe.REST_S", 0)
    questions = Questions(
        ["warehouse", "absent"], [("postgres", "warehouse")], [str(seen), "/nowhere/.doctor-1"], ["127.0.0.1:1"]
    )
    [answer] = look(questions, [])
    assert '"missing": ["absent"]' in answer
    assert '"unseen": ["/nowhere/.doctor-1"]' in answer
    assert '"sources": ["127.0.0.1:1"]' in answer
    assert "the database of connection warehouse cannot be reached" in answer
    assert "canary" not in answer
