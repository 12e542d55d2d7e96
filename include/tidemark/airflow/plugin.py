"""The parts that Tidemark adds to Airflow: its page in the navigation bar, notes of DAG runs, labels of waiting tasks.

All of Airflow's processes import this. The API server shows the page; the scheduler calls the hooks.
"""

from typing import Any
from urllib.parse import urlsplit

from airflow.plugins_manager import AirflowPlugin
from airflow.settings import get_policy_plugin_manager

from tidemark.airflow import addresses, in_scheduler

ROOT = urlsplit(addresses.airflow_address()).path


async def page(scope: Any, receive: Any, send: Any) -> None:
    """Import the app with its first request: tasks and the scheduler load plugins too, and do not need it."""
    from tidemark.airflow.page.app import app

    await app(scope, receive, send)


class Tidemark(AirflowPlugin):
    name = "tidemark"
    fastapi_apps = [{"name": "tidemark", "app": page, "url_prefix": addresses.MOUNT}]  # noqa: RUF012
    external_views = [  # noqa: RUF012
        {
            "name": "Tidemark",
            "href": f"{ROOT}{addresses.MOUNT}/",
            "url_route": "tidemark",
            "destination": "nav",
            "nav_top_level": True,
        }
    ]
    listeners = [in_scheduler]  # noqa: RUF012


if not get_policy_plugin_manager().is_registered(in_scheduler):
    get_policy_plugin_manager().register(in_scheduler)
