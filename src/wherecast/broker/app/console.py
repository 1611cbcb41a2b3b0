"""The console: files of the package, read once, with headers that let a browser run nothing else.

A file is looked up by its name in a table, so no path of a request reaches the file system.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import NamedTuple

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from wherecast.broker.problems import not_found

router = APIRouter(include_in_schema=False)

_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-cache",  # asked for each time, sent only if it changed
}


class Asset(NamedTuple):
    body: bytes
    type: str
    etag: str


@cache
def assets() -> dict[str, Asset]:
    """All files of the console by name; those of the views as views/NAME.js."""
    found: dict[str, Asset] = {}

    def read(folder: Traversable, prefix: str) -> None:
        for file in folder.iterdir():
            if file.is_dir():
                read(file, f"{prefix}{file.name}/")
            elif (kind := _TYPES.get("." + file.name.rpartition(".")[2])) is not None:
                body = file.read_bytes()
                etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
                found[prefix + file.name] = Asset(body, f"{kind}; charset=utf-8", etag)

    read(resources.files("wherecast.broker") / "console", "")
    return found


def _send(request: Request, name: str) -> Response:
    asset = assets().get(name)
    if asset is None:
        raise not_found("file of the console", name)
    headers = {**_HEADERS, "ETag": asset.etag}
    if request.headers.get("if-none-match") == asset.etag:
        return Response(status_code=304, headers=headers)
    return Response(asset.body, headers={**headers, "Content-Type": asset.type})


@router.get("/")
@router.get("/console/")
async def home() -> Response:
    """The console is the page for people who come by with a browser."""
    return RedirectResponse("/console", 307)


@router.get("/console")
async def page(request: Request) -> Response:
    """The one page; the rest is done by its scripts."""
    return _send(request, "index.html")


@router.get("/console/assets/{name:path}")
async def asset(request: Request, name: str) -> Response:
    """A script, the style sheet, or a picture."""
    return _send(request, name)
