"""Declares the kinds of this provider: changes of a table as Debezium writes them, and a project that copies one."""

from typing import Final

from tidemark.providers import Provider

PROVIDER: Final = Provider(
    "debezium",
    envelopes={"debezium": "tidemark.providers.debezium"},
    project=(
        "README.md",
        ".gitignore",
        "env.example",
        "source.sql",
        "connect/orders.json",
        "pipelines/orders.yaml",
        "copy.sql",
        "compare.sql",
        "dags/tidemark_dags.py",
        "dags/tidemark_pipeline_files.py",
    ),
)
