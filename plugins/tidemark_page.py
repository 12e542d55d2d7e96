"""The page of Tidemark in Airflow's navigation bar. All of Airflow's processes import this; the API server shows it."""

from typing import Any
from urllib.parse import urlsplit

from airflow.configuration import conf
from airflow.plugins_manager import AirflowPlugin

ROOT = urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/")


async def page(scope: Any, receive: Any, send: Any) -> None:
    """The app, imported with its first request: tasks and the scheduler load plugins too, and have no use for it."""
    from tidemark.airflow.page.app import app

    await app(scope, receive, send)


class TidemarkPage(AirflowPlugin):
    name = "tidemark_page"
    fastapi_apps = [{"name": "tidemark", "app": page, "url_prefix": "/tidemark"}]  # noqa: RUF012
    external_views = [  # noqa: RUF012
        {
            "name": "Tidemark",
            "href": f"{ROOT}/tidemark/",
            "url_route": "tidemark",
            "destination": "nav",
            "nav_top_level": True,
        }
    ]
