"""Conditional requests for reading (RFC 9110 §13.1.2): an answer that the client already has is not
sent again.

The ETag of an answer is a digest of its body, because most resources also show what changes without
an edit, such as counts. Before the digest stands the version of the resource if it has one, which
``If-Match`` compares."""

from __future__ import annotations

from hashlib import blake2b

from aiohttp import web

_DIGEST_BYTES = 8


def conditional(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    """``response`` to a GET or HEAD request, with its ETag; a response without a body and with the
    status 304 if the request names this ETag in ``If-None-Match``. Other responses, and those that
    are sent in pieces, are returned unchanged."""
    if (
        request.method not in ("GET", "HEAD")
        or not isinstance(response, web.Response)
        or response.status != 200
        or not isinstance(response.body, bytes)
    ):
        return response

    version = response.headers.get("ETag", "").strip('"')
    digest = blake2b(response.body, digest_size=_DIGEST_BYTES).hexdigest()
    tag = f"{version}.{digest}" if version else digest
    response.headers["ETag"] = f'"{tag}"'
    # Without it, a cache may decide by itself how long an answer stays fresh, and for whom.
    response.headers.setdefault("Cache-Control", "private, no-cache")
    if not _names(request, tag):
        return response

    unchanged = web.Response(status=304)
    unchanged.headers.extend(
        (name, value) for name, value in response.headers.items() if name != "Content-Type"
    )
    return unchanged


def _names(request: web.Request, tag: str) -> bool:
    """Whether ``If-None-Match`` contains the tag. A web server in front of the API that compresses
    answers makes it weak, which does not matter here."""
    given = ",".join(request.headers.getall("If-None-Match", []))
    tags = {each.strip().removeprefix("W/").strip('"') for each in given.split(",")}
    return bool(given) and (tag in tags or "*" in tags)
