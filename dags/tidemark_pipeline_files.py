"""An import error while a pipeline file is wrong. It has no DAG, because Airflow stops every DAG of a file with one."""

from tidemark.environment import Environment
from tidemark.pipeline.deployed import refuse_wrong_files

refuse_wrong_files(Environment.from_variables().pipelines)
