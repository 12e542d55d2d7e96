"""A task that writes the time down until it is killed, and one mapped over a list that may be empty."""

import time
from pathlib import Path

from airflow.sdk import DAG, get_current_context, task

with DAG(dag_id="clearing", schedule=None, params={"file": "", "list": [1, 2]}) as dag:

    @task(retries=1)
    def beat() -> None:
        context = get_current_context()
        while True:
            with Path(context["params"]["file"]).open("a") as file:
                file.write(f"{context['ti'].try_number} {time.time()}\n")
            time.sleep(0.1)

    beat()

with DAG(dag_id="mapping", schedule=None, params={"list": [1, 2]}) as mapping:

    @task
    def numbers() -> list[int]:
        return list(get_current_context()["params"]["list"])

    @task(map_index_template="number {{ task.op_kwargs['number'] }}", retries=2)
    def each(number: int) -> None:
        print(number)

    @task(trigger_rule="none_failed")
    def after() -> None:
        print("after")

    each.expand(number=numbers()) >> after()
