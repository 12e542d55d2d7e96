"""docs/ as a site: each link leads somewhere, and each page is in the list of pages."""

from pathlib import Path

from sandbox.bootstrap import site


def test_the_site_is_built_without_a_broken_link(tmp_path: Path) -> None:
    assert site.build(tmp_path) == 0
    index = (tmp_path / "index.html").read_text()
    for page in ("errors", "operations", "page", "configuration", "guarantees"):
        assert f'href="{page}.html"' in index
        assert (tmp_path / f"{page}.html").exists()
    assert 'id="data-lost"' in (tmp_path / "errors.html").read_text()
    assert list((tmp_path / "_images").glob("*.png"))
