"""Leaves out the tests of providers that a change does not touch: ``make test SINCE=COMMIT`` says since when."""

import os
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from sandbox.bootstrap.checkout import CHECKOUT
from tidemark.kinds import PROVIDERS

HERE = Path(__file__).parent
PROVIDER = ("include/tidemark/providers/", "tests/providers/")
# Folders of ``providers`` that are no provider, but what several share, and the others that each needs.
SHARED_BY_PROVIDERS: Mapping[str, set[str]] = {"tables": set(), "lake_tables": {"tables"}}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    since = os.environ.get("TIDEMARK_TESTS_SINCE", "")
    if not since:
        return
    left_out = [item for item in items if (name := provider_of(item.path)) and not is_touched(name, since)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def provider_of(path: Path) -> str | None:
    return path.relative_to(HERE).parts[0] if path.is_relative_to(HERE) else None


def is_touched(name: str, since: str) -> bool:
    """Return true if the change touches the provider, one that it needs, or anything that is no provider's."""
    needs = PROVIDERS.by_name[name].needs if name in PROVIDERS.by_name else SHARED_BY_PROVIDERS[name]
    return not touched_providers(since).isdisjoint({"", name, *needs})


@cache
def touched_providers(since: str) -> frozenset[str]:
    """Return the providers whose files differ from a commit, and "" if any other file but documentation does."""
    words = ["git", "diff", "--name-only", since]
    changed = subprocess.run(words, cwd=CHECKOUT, text=True, capture_output=True, check=True).stdout.split()
    return frozenset(touched_by(file) for file in changed if not file.endswith(".md"))


def touched_by(file: str) -> str:
    inside = [file.removeprefix(folder) for folder in PROVIDER if file.startswith(folder)]
    return inside[0].partition("/")[0] if inside and "/" in inside[0] else ""
