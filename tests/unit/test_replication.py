"""What ``doctor`` says of a failover, by the settings of the server and the standby servers that are connected."""

import pytest

from tidemark.database.health import Health
from tidemark.database.usable import without_standby
from tidemark.doctor.database import replication
from tidemark.model.findings import Severity


@pytest.mark.parametrize(
    ("names", "commit", "standbys", "confirming", "severity", "message"),
    [
        ("", "on", 0, 0, Severity.OK, "no standby server is connected"),
        ("", "on", 2, 2, Severity.WARNING, "not synchronous (2 standby servers)"),
        ("any 1 (a, b)", "on", 2, 2, Severity.OK, "replication is synchronous"),
        ("any 1 (a, b)", "remote_apply", 1, 1, Severity.OK, "replication is synchronous"),
        ("any 1 (a, b)", "remote_apply", 0, 0, Severity.FAILED, "each COMMIT would wait"),
        ("a", "on", 1, 0, Severity.FAILED, "each COMMIT would wait"),
        ("any 1 (a, b)", "local", 2, 2, Severity.WARNING, "not synchronous"),
        ("any 1 (a, b)", "off", 2, 2, Severity.WARNING, "not synchronous"),
    ],
)
def test_doctor_says_whether_a_failover_may_lose_transactions(
    names: str, commit: str, standbys: int, confirming: int, severity: Severity, message: str
) -> None:
    settings = {"synchronous_standby_names": names, "synchronous_commit": commit}
    awaited = "" if commit in ("off", "local") else names  # as the query of a new session says it
    status = Health(
        "here", "18", 1, "an id", None, False, False, settings, standbys, without_standby(awaited, confirming), 0.0
    )
    finding = replication(status)
    assert finding.severity is severity
    assert message in str(finding)
