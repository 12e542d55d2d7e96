"""Tests of a provider run when it, one that it needs, or the core has changed."""

import pytest

from tests.providers import conftest


@pytest.mark.parametrize(
    ("files", "run", "left_out"),
    [
        (["include/tidemark/providers/delta/sink.py"], {"delta"}, {"iceberg", "topic"}),
        (["tests/providers/delta/unit/test_delta_settings.py"], {"delta"}, {"iceberg"}),
        (["include/tidemark/providers/registry/schemas.py"], {"registry", "avro", "protobuf", "topic"}, {"delta"}),
        (["include/tidemark/providers/lake_tables/output.py"], {"lake_tables", "delta", "iceberg"}, {"topic"}),
        (["include/tidemark/providers/tables/audit.py"], {"postgres", "lake_tables", "delta"}, {"topic"}),
        (["include/tidemark/planner.py"], {"delta", "iceberg", "topic", "lake_tables"}, set()),
        (["include/tidemark/providers/__init__.py"], {"delta", "topic"}, set()),
        (["docs/reading.md", "README.md"], set(), {"delta", "topic"}),
        ([], set(), {"delta", "topic"}),
    ],
)
def test_what_changed_decides_which_providers_are_tested(
    files: list[str], run: set[str], left_out: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    touched = frozenset(conftest.touched_by(file) for file in files if not file.endswith(".md"))
    monkeypatch.setattr(conftest, "touched_providers", lambda _: touched)
    assert all(conftest.is_touched(name, "a commit") for name in run)
    assert not any(conftest.is_touched(name, "a commit") for name in left_out)
