"""Tidemark in Airflow: a DAG for each pipeline file. Only this folder imports Airflow.

DAG files use ``dags`` and ``require_right_files`` for all pipelines, as in ``dags/``; ``pipeline_dag`` and
``pipeline_tasks`` are for a DAG of your own.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemark.airflow.dag import dags, pipeline_dag, pipeline_tasks

__all__ = ["dags", "pipeline_dag", "pipeline_tasks", "require_right_files"]


def require_right_files() -> None:
    """Raise all problems of the pipeline files, so that Airflow shows them as the import error of a DAG file.

    That DAG file must have no DAG: Airflow stops every DAG of a file with an import error.
    """
    from tidemark.environment import Environment
    from tidemark.pipeline.deployed import refuse_wrong_files

    refuse_wrong_files(Environment.from_variables().pipelines)


def __getattr__(name: str) -> Any:
    """Import Airflow when one of these names is used: most modules of this folder work without it."""
    if name in __all__:
        from tidemark.airflow import dag

        return getattr(dag, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
