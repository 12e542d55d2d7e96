"""The app that Airflow mounts below ``/tidemark``: pages, their JSON, and the form of an error in both."""

from collections.abc import Awaitable, Callable
from typing import Any, NoReturn
from urllib.parse import quote, urlencode

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse
from starlette.exceptions import HTTPException

from tidemark.airflow.addresses import MOUNT
from tidemark.airflow.page import json_api, pages
from tidemark.airflow.page.access import LOGGED_IN, Renamed
from tidemark.airflow.page.render import page
from tidemark.errors import AccessDenied, NotFound, TidemarkError, Unavailable
from tidemark.version import VERSION

# Nothing from elsewhere, no script and no style within a page, and only Airflow may show it in a frame.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
STATUS: dict[type[TidemarkError], int] = {
    NotFound: 404,
    Unavailable: 503,
    AccessDenied: 503,
}
A_PERSON_MUST_ACT = 409
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"]


def build_app() -> FastAPI:
    app = FastAPI(title="Tidemark", version=VERSION, docs_url=None, redoc_url=None, openapi_url=None)
    app.include_router(json_api.router)
    app.include_router(pages.router)
    # Last: it takes what no other route does. Who is not logged in learns nothing, not even which addresses there are.
    app.add_api_route(
        "/{path:path}", _not_found, methods=METHODS, dependencies=[LOGGED_IN], response_model=None,
        include_in_schema=False,
    )  # fmt: skip
    app.add_exception_handler(TidemarkError, _ours)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(Renamed, _redirect_renamed)
    app.add_exception_handler(RequestValidationError, _not_understood)
    app.middleware("http")(_with_headers)
    return app


def _not_found() -> NoReturn:
    raise HTTPException(404, "there is no such page, or not by this method")


async def _with_headers(request: Request, handle: Callable[[Request], Awaitable[Response]]) -> Response:
    response = await handle(request)
    response.headers.update(HEADERS)
    return response


def _ours(request: Request, error: Any) -> Response:
    status = next((code for kind, code in STATUS.items() if isinstance(error, kind)), A_PERSON_MUST_ACT)
    return _error_page(request, status, error.what, error.next_step)


def _refused(request: Request, error: Any) -> Response:
    if error.status_code != 401:
        return _error_page(request, error.status_code, str(error.detail), "")
    return _error_page(
        request,
        401,
        "You are not logged in, or no longer.",
        "log in to Airflow, which leads back here",
        _login(request),
    )


def _login(request: Request) -> str:
    """Return Airflow's address for a login that leads back: to the same page, or from a form to the page of its
    pipeline.
    """
    root = str(request.scope.get("root_path", ""))
    back, query = request.url.path, request.url.query
    if request.method != "GET":
        back, query = back.partition("/start/")[0], ""
    back = f"{back}?{query}" if query else back
    return f"{root.removesuffix(MOUNT)}/api/v2/auth/login?{urlencode({'next': back})}"


def _redirect_renamed(request: Request, error: Any) -> Response:
    old, new = f"/pipelines/{request.path_params['dag_id']}", f"/pipelines/{quote(error.name, safe='')}"
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(request.url.path.replace(old, new, 1) + query, 307)


def _not_understood(request: Request, error: Any) -> Response:
    wrong = [f"{'.'.join(map(str, each['loc'][1:]))}: {each['msg']}" for each in error.errors()]
    return _error_page(request, 422, "; ".join(wrong), "go back and correct it")


def _error_page(request: Request, status: int, what: str, next_step: str, login: str = "") -> Response:
    path = request.url.path.removeprefix(str(request.scope.get("root_path", "")))
    if path.startswith("/api/"):
        return JSONResponse({"detail": what, "next": next_step}, status)
    names = [request.path_params["dag_id"]] if "dag_id" in request.path_params else []
    values = {"status": status, "what": what, "next_step": next_step, "login": login, "names": names}
    return page(request, "error.html", values, status)


app = build_app()
