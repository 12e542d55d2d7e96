"""The browser of the tests in `tests/ui`: `python -m sandbox.bootstrap.browser` finds Chromium, or installs it.

It comes from the system's packages, because it needs libraries of the system. Only Debian and Ubuntu are supported.
"""

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome")
INSTALL = "apt-get install --no-install-recommends chromium"


def chromium() -> str | None:
    """Return the path of the machine's Chromium, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def main() -> None:
    """Install Chromium if it is missing. If this user may not install it, exit with 2 and say what to install."""
    if chromium() is not None:
        return
    apt = shutil.which("apt-get")
    if apt and os.geteuid() == 0:
        print("set-up: Chromium is installed from the system's packages", flush=True)
        for words in (["update"], [*INSTALL.split()[1:], "--yes"]):
            subprocess.run([apt, "--quiet=2", *words], env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    if chromium() is None:
        problem = "the browser tests need Chromium, and none is on the PATH"
        sys.stderr.write(f"{problem}\n  install it (Debian: {INSTALL})\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
