"""The plugin is loaded once: by the entry point of an installed package, else from the folder ``plugins/``."""

import importlib.metadata

import pytest
from airflow.plugins_manager import _load_entrypoint_plugins, _load_plugins_from_plugin_directory

from sandbox.bootstrap.checkout import CHECKOUT


def from_the_folder() -> list[str | None]:
    plugins, errors = _load_plugins_from_plugin_directory(str(CHECKOUT / "plugins"))
    assert errors == {}
    return [plugin.name for plugin in plugins]


def test_an_installed_package_is_loaded_by_its_entry_point_and_not_from_the_folder_too() -> None:
    """Airflow would take the second one for an import error."""
    plugins, errors = _load_entrypoint_plugins()
    assert [plugin.name for plugin in plugins].count("tidemark") == 1
    assert not [module for module in errors if module.startswith("tidemark")]
    assert from_the_folder() == []


def test_a_package_that_is_only_on_the_path_is_loaded_from_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: ())
    assert from_the_folder() == ["tidemark"]
