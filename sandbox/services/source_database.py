"""PostgreSQL 15 of Debian as the source of changes: with hstore, citext and ltree, and `wal_level=logical`.

It is fetched at the first start: 30 MB.
"""

import shutil
from pathlib import Path

from sandbox.bootstrap.postgresql import LIBRARIES_BELOW, PROGRAMS, unpacked
from sandbox.services.postgres import Postgres, remove_home


class SourceDatabase(Postgres):
    """One server. ``programs_home`` keeps the packages for later starts."""

    options = ("-c", "wal_level=logical", "-c", "max_replication_slots=20", "-c", "max_wal_senders=20")
    initial = ()

    def __init__(self, state: Path, programs_home: Path, *, scratch: Path | None = None) -> None:
        super().__init__(state / "source", scratch=scratch)
        self._programs_home = programs_home.resolve()

    def remove(self) -> None:
        """Delete its programs and data outside the state folder. The server must be stopped."""
        remove_home(self.state.parent)

    def _install(self, home: Path) -> None:
        packages = unpacked(self._programs_home)
        if self.user is None:
            (home / "debian").unlink(missing_ok=True)
            (home / "debian").symlink_to(packages)
        else:
            shutil.copytree(packages, home / "debian", symlinks=True)
        (home / "pg").unlink(missing_ok=True)
        (home / "pg").symlink_to(home / "debian" / PROGRAMS)

    def _environment(self, home: Path) -> dict[str, str]:
        return {**super()._environment(home), "LD_LIBRARY_PATH": str(home / "debian" / LIBRARIES_BELOW)}
