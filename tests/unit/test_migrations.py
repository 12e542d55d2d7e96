"""The files that make the tables: numbered without a gap, and after a release the same for ever."""

import re
import tarfile
from pathlib import Path

import pytest

from tidemark.database.migrate import migrations
from tidemark.version import PACKAGE, VERSION

DUMPS = Path(__file__).parents[1] / "dumps"
FOLDER = PACKAGE / "database"


def test_migrations_are_numbered_one_after_the_other() -> None:
    names = ["schema.sql", *sorted(f"migrations/{path.name}" for path in FOLDER.glob("migrations/*"))]
    steps = migrations()
    assert [step.name for step in steps] == names
    assert [step.version for step in steps] == list(range(1, len(steps) + 1))


def test_a_digest_is_of_all_files_up_to_its_version(tmp_path: Path) -> None:
    (tmp_path / "migrations").mkdir()
    for name, sql in {
        "schema.sql": "one",
        "migrations/0002.sql": "two",
        "migrations/0004.sql": "no 3, so no 4",
    }.items():
        (tmp_path / name).write_text(sql)
    before = migrations(tmp_path)
    assert [step.name for step in before] == ["schema.sql", "migrations/0002.sql"]
    (tmp_path / "schema.sql").write_text("other")
    assert [step.sql for step in migrations(tmp_path)] == [b"other", b"two"]
    assert {step.digest for step in before}.isdisjoint(step.digest for step in migrations(tmp_path))


def test_this_version_has_a_dump() -> None:
    assert (DUMPS / f"{VERSION}.tar.gz").is_file(), "make dump"


@pytest.mark.parametrize("dump", sorted(DUMPS.glob("*.tar.gz")), ids=lambda path: path.name)
def test_the_files_of_a_release_are_as_they_were(dump: Path) -> None:
    with tarfile.open(dump) as archive:
        file = archive.extractfile("database.sql")
        assert file is not None
        text = file.read().decode()
    stored = re.search(r"^COPY tidemark\.database .*\n\w+\t\S+\t\S+\t(\d+)\t(\w+)\t", text, re.MULTILINE)
    assert stored is not None
    released = {(str(step.version), step.digest) for step in migrations()}
    assert stored.groups() in released, "released: undo the change, and add a migration; not yet: make dump"
