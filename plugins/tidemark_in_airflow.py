"""Tidemark's plugin, where the package is on Airflow's path and not installed, as in the image of the Dockerfile.

An installed package, as in the environment of `make setup`, has an entry point by which Airflow loads the plugin. It
would take a second one of that name, from this folder, for an import error.
"""

from importlib.metadata import entry_points

if not entry_points(group="airflow.plugins", name="tidemark"):
    from tidemark.airflow.plugin import Tidemark as Tidemark
