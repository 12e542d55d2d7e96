"""Tidemark in Airflow: a DAG for each pipeline file. Only this folder and ``dags/`` import Airflow.

``pipeline_dag`` and ``pipeline_tasks`` are for DAG files of your own; ``tidemark.airflow.dag`` describes them.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemark.airflow.dag import pipeline_dag, pipeline_tasks

__all__ = ["pipeline_dag", "pipeline_tasks"]


def __getattr__(name: str) -> Any:
    """Airflow is imported when one of them is used: most modules of this folder do without."""
    if name in __all__:
        from tidemark.airflow import dag

        return getattr(dag, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
