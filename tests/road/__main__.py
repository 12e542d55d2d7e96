"""Walks the main road and writes the tables of ``docs/the-core.md`` again: ``python -m tests.road``."""

import os
import sys

import pytest

if __name__ == "__main__":
    os.environ["ROAD_PAGE"] = "write"
    sys.exit(pytest.main(["-q", "-s", "tests/integration/test_the_core.py"]))
