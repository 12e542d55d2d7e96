"""The store of the tests: what names another one than the emulator, and what `make test-stores` needs of a machine."""

import os
import shutil

import pytest

from sandbox.bootstrap import ceph
from sandbox.errors import SandboxFailed
from sandbox.services.s3 import VARIABLES, Bucket

PLACE = Bucket("s3://shared/tests", "http://127.0.0.1:9", "key", "secret")


def test_the_environment_names_a_place_in_a_store_or_none() -> None:
    assert Bucket.of_environment({}) is None
    assert Bucket.of_environment(PLACE.environment()) == PLACE
    own = PLACE.below("run")
    assert (own.root, own.name, own.prefix) == ("s3://shared/tests/run", "shared", "tests/run")


@pytest.mark.parametrize("name", VARIABLES.values())
def test_half_of_a_place_is_refused_by_name(name: str) -> None:
    left = {other: value for other, value in PLACE.environment().items() if other != name}
    with pytest.raises(SandboxFailed, match=f"{name} must be set, too"):
        Bucket.of_environment(left)


def test_who_may_not_install_ceph_is_told_what_is_missing_and_the_words_that_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "radosgw" else f"/usr/bin/{name}")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(SystemExit) as ended:
        ceph.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        "Ceph's gateway needs radosgw, which this machine lacks\n"
        "  install it (Debian: apt-get install --no-install-recommends radosgw ceph-mon ceph-osd ceph-common)\n"
    )
