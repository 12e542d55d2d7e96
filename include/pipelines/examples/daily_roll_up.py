"""A DAG that starts when the 24 hours of a day are complete, and once more when a later revision of them is.

Copy it into the folder of your DAGs and name your pipeline. Days are those of UTC. Airflow 3.2 or newer.
"""

from typing import Any

from airflow.sdk import (
    DAG,
    Asset,
    DayWindow,
    PartitionedAssetTimetable,
    RollupMapper,
    StartOfDayMapper,
    WaitForAll,
    task,
)

PIPELINE = "flights"

hours = Asset(name=f"tidemark_{PIPELINE}_hours", uri=f"tidemark://pipeline/{PIPELINE}/hours")
a_whole_day = RollupMapper(upstream_mapper=StartOfDayMapper(), window=DayWindow(), wait_policy=WaitForAll())

with DAG(
    dag_id=f"{PIPELINE}_daily",
    schedule=PartitionedAssetTimetable(assets=hours, default_partition_mapper=a_whole_day),
    catchup=False,
    max_active_runs=1,
    doc_md=__doc__,
):

    @task
    def roll_up(*, dag_run: Any = None) -> str:
        """Compute the day again and replace its result, because the day may come again with late rows."""
        day: str = dag_run.partition_key
        print(f"all hours of {day} are complete: compute the day from the lake")
        return day

    roll_up()
