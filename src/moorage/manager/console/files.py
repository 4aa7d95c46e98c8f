"""Static files of the web console, with their cache headers and Content-Security-Policy.

Files in ``assets/`` have a hash of their content in their name, and are cached permanently. The
page itself is generated for each response, with a nonce for the styles that its component library
adds. Its addresses are relative, because a web server in front may remove a prefix, such as
``/mgr``, from the paths that a browser sees.
"""

from __future__ import annotations

import asyncio
import gzip
import mimetypes
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from aiohttp import web

from moorage.common.aio.clock import Clock
from moorage.common.http.codings import accepts
from moorage.common.http.relative import to_root
from moorage.common.model.errors import NotFound
from moorage.manager.console.chat import ModelAddress, add_chat

BUNDLE = Path(__file__).parent / "bundle"
PREFIX = "/console"
_NONCE = "__CSP_NONCE__"
# References of the built page to its files, as if every page of the console were at its root.
_REFERENCE = re.compile(r'( (?:href|src)=")\./')
_FOREVER = "public, max-age=31536000, immutable"
_COMPRESSIBLE = frozenset({"text/css", "text/javascript", "image/svg+xml", "application/json"})
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def policy(nonce: str) -> str:
    """The Content-Security-Policy of the page."""
    return (
        f"default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; img-src 'self' "
        "data:; "
        "font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'"
    )


@dataclass(frozen=True, slots=True)
class _File:
    """``packed``: its body in each content coding, the best first."""

    body: bytes
    packed: dict[str, bytes]
    content_type: str


@lru_cache(256)
def _read(path: Path) -> _File:
    body = path.read_bytes()
    content_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    compressible = content_type in _COMPRESSIBLE or content_type == "application/javascript"
    packed = {}
    if compressible:
        # The build compresses the files of the first page, because Python has no brotli.
        brotli = path.with_name(f"{path.name}.br")
        packed = {"br": brotli.read_bytes()} if brotli.is_file() else {}
        packed["gzip"] = gzip.compress(body, 9, mtime=0)

    return _File(body, packed, content_type)


def add_console(
    app: web.Application, clock: Clock, models: ModelAddress, bundle: Path = BUNDLE
) -> None:
    """Add the routes of the console. ``clock``: source of the nonces. ``models``: address of the
    API that its chat uses."""

    async def page(request: web.Request) -> web.StreamResponse:
        index = bundle / "index.html"
        if not index.is_file():
            raise NotFound(
                "this checkout has no built console", next_step="`make console` builds it"
            )

        nonce = clock.secret(16)
        template = (await asyncio.to_thread(_read, index)).body.decode()
        console = f"{to_root(request.rel_url.raw_path)}{PREFIX[1:]}/"
        return web.Response(
            text=_REFERENCE.sub(rf"\g<1>{console}", template).replace(_NONCE, nonce),
            content_type="text/html",
            headers={
                **_HEADERS,
                "Content-Security-Policy": policy(nonce),
                "Cache-Control": "no-store",
            },
        )

    async def asset(request: web.Request) -> web.StreamResponse:
        return await _answer(request, bundle / "assets", _FOREVER)

    async def plain(request: web.Request) -> web.StreamResponse:
        return await _answer(request, bundle, "no-cache")

    async def redirect(request: web.Request) -> web.StreamResponse:
        return web.Response(status=308, headers={"Location": f"{PREFIX[1:]}/"})

    add_chat(app, PREFIX, models)
    app.router.add_get(PREFIX, redirect)
    app.router.add_get(f"{PREFIX}/assets/{{name}}", asset)
    app.router.add_get(f"{PREFIX}/{{name:[a-z]+\\.(?:js|svg)}}", plain)
    app.router.add_get(f"{PREFIX}/{{page:.*}}", page)


async def _answer(request: web.Request, folder: Path, cache: str) -> web.Response:
    name = request.match_info["name"]
    path = folder / name
    if "/" in name or "\\" in name or "\0" in name or name.startswith(".") or not path.is_file():
        raise NotFound(f"the console has no file {name!r}", next_step="load the console again")

    found = await asyncio.to_thread(_read, path)
    headers = {**_HEADERS, "Cache-Control": cache}
    body = found.body
    if found.packed:
        headers["Vary"] = "Accept-Encoding"
        given = request.headers.getall("Accept-Encoding", [])
        for coding in (name for name in found.packed if accepts(given, name)):
            headers["Content-Encoding"] = coding
            body = found.packed[coding]
            break

    return web.Response(body=body, content_type=found.content_type, headers=headers)
