"""The folders of ``sandbox/`` stand on each other in one direction, and the check of the machine needs nothing."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SANDBOX = Path(__file__).parents[2] / "sandbox"
MAY_IMPORT = {"bootstrap": {"bootstrap", "errors"}, "services": {"services", "bootstrap", "errors"}}
BEFORE_PACKAGES = ("__init__.py", "checkout.py", "check_machine.py", "install.py")


def imported(path: Path) -> Iterator[str]:
    """The full names of the modules that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{name.name}" for name in node.names)


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_a_folder_imports_only_what_it_stands_on(folder: str) -> None:
    names = {name for path in (SANDBOX / folder).glob("*.py") for name in imported(path)}
    folders = {name.split(".")[1] for name in names if name.startswith("sandbox.")}
    assert folders <= MAY_IMPORT[folder]


@pytest.mark.parametrize("name", BEFORE_PACKAGES)
def test_what_runs_before_the_packages_are_installed_needs_only_the_standard_library(name: str) -> None:
    foreign = {module.partition(".")[0] for module in imported(SANDBOX / "bootstrap" / name)} - set(
        sys.stdlib_module_names
    )
    assert foreign <= {"sandbox"}
    ours = {module for module in imported(SANDBOX / "bootstrap" / name) if module.startswith("sandbox.")}
    assert all(module.startswith(("sandbox.bootstrap.checkout", "sandbox.bootstrap.check_machine")) for module in ours)
