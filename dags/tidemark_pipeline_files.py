"""An import error while a pipeline file is wrong. It has no DAG, because Airflow stops every DAG of a file with one."""

from tidemark.airflow import require_right_files

require_right_files()
