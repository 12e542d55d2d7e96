"""Every other address: who is not logged in learns nothing, not even which addresses there are."""

from typing import NoReturn

from fastapi import APIRouter, HTTPException

from tidemark.airflow.page.access import LOGGED_IN

router = APIRouter(include_in_schema=False)
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"]


@router.api_route("/{path:path}", methods=METHODS, dependencies=[LOGGED_IN], response_model=None)
def not_found() -> NoReturn:
    raise HTTPException(404, "there is no such page, or not by this method")
