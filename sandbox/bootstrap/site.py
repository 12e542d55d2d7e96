"""Builds docs/ as a site into `.tidemark/site`: `python -m sandbox.bootstrap.site`. A broken link is an error."""

import os
import subprocess
import sys
from pathlib import Path

from sandbox.bootstrap.apart import packages_of
from sandbox.bootstrap.checkout import CHECKOUT, STATE


def build(folder: Path) -> int:
    """Build the site. Return the exit status of Sphinx, which reports errors on standard error."""
    words = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet"]
    environment = {**os.environ, "PYTHONPATH": str(packages_of("site"))}
    return subprocess.run([*words, str(CHECKOUT / "docs"), str(folder)], env=environment).returncode


if __name__ == "__main__":
    site = STATE / "site"
    code = build(site)
    if code == 0:
        print(f"{site}/index.html")
    sys.exit(code)
