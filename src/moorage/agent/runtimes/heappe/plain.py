"""Relay to an engine that HEAppE reaches without our relay in the job.

HEAppE drops the engine's status and headers. A GET returns the body of a 200 or of an error. A POST
is a stream of unknown status. The status of an error is therefore read from its body, and a failed
POST is repeated without a stream, by a call that returns the body.
"""

from __future__ import annotations

import json
from typing import Any

from aiohttp import web

from moorage.agent.runtimes.heappe import framing
from moorage.agent.runtimes.heappe.answers import SiteRefused, cut_off, error_response
from moorage.agent.runtimes.heappe.client import HeappeClient
from moorage.agent.runtimes.heappe.errors import (
    HeappeFailed,
    SiteFault,
    stream_failure,
    upstream_body,
)
from moorage.agent.runtimes.heappe.tunnel import TunnelKeeper, Way

_MAX_HEADER = 100
_PASSED = ("accept", "authorization", "content-type", "x-request-id")
_JSON = "application/json"
_EVENTS = "text/event-stream"


async def relay_plain(
    client: HeappeClient, request: web.BaseRequest, body: str, way: Way, *, keeper: TunnelKeeper
) -> web.StreamResponse:
    """Relay a request. Raises ``HeappeFailed`` before the first byte of the answer."""
    headers = _headers(request)
    if request.method == "GET":
        return await _get(client, request, headers=headers, way=way, keeper=keeper)
    if request.method != "POST":
        return error_response(501, f"HEAppE passes only GET and POST, not {request.method}")

    streams = _is_stream(body)
    async with client.stream(way.tunnel, request.path_qs, headers, body) as content:
        plain = framing.PlainBody()
        first = b""
        while not first and plain.failure is None:
            if not (data := await content.readany()):
                first = plain.end()
                break

            first = plain.feed(data)

        if not first and plain.failure is not None:
            return await _explain(
                client,
                request,
                headers=headers,
                body=body,
                way=way,
                keeper=keeper,
                said=plain.failure,
            )

        keeper.answered()
        response = web.StreamResponse(headers={"Content-Type": _EVENTS if streams else _JSON})
        await response.prepare(request)

        try:
            while first:
                await response.write(first)
                first = b""
                while not first and plain.failure is None and (data := await content.readany()):
                    first = plain.feed(data)

            if rest := plain.end():
                await response.write(rest)
        except (HeappeFailed, OSError):
            cut_off(request)
            return response

    is_whole = plain.failure is None and (not streams or b"data: [DONE]" in plain.tail)
    if is_whole:
        await response.write_eof()
    else:
        cut_off(request)

    return response


async def _get(
    client: HeappeClient,
    request: web.BaseRequest,
    headers: dict[str, str],
    way: Way,
    *,
    keeper: TunnelKeeper,
) -> web.Response:
    try:
        page = await client.get(way.tunnel, request.path_qs, headers)
    except HeappeFailed as error:
        body = upstream_body(error.detail)
        if error.problem is not SiteFault.UPSTREAM or not body:
            raise

        keeper.answered()
        return _answer(status_of(body, 502), body)

    keeper.answered()
    return _answer(200, page)


async def _explain(
    client: HeappeClient,
    request: web.BaseRequest,
    headers: dict[str, str],
    body: str,
    *,
    way: Way,
    keeper: TunnelKeeper,
    said: str,
) -> web.Response:
    """The engine's own answer to a POST that it refused."""
    error = stream_failure(said)
    whole = _without_stream(body)
    if (
        error.problem is not SiteFault.UPSTREAM
        or not said.startswith("ResponseNotOk")
        or whole is None
    ):
        raise error

    try:
        page = await client.post(way.tunnel, request.path_qs, headers, whole)
    except HeappeFailed as replayed:
        if found := upstream_body(replayed.detail):
            keeper.answered()
            return _answer(status_of(found, 400), found)
    else:
        if not _is_stream(body):
            return _answer(200, page)

    raise error


def status_of(body: str, otherwise: int) -> int:
    """The status in an error body, as OpenAI and vLLM write it."""
    try:
        value: Any = json.loads(body)
    except ValueError:
        return otherwise

    value = value.get("error", value) if isinstance(value, dict) else {}
    code = value.get("code") if isinstance(value, dict) else None
    if isinstance(code, str) and code.isdigit():
        code = int(code)

    return code if isinstance(code, int) and 400 <= code < 600 else otherwise


def _answer(status: int, text: str) -> web.Response:
    is_json = text.lstrip()[:1] in ("{", "[", '"')
    return web.Response(status=status, text=text, content_type=_JSON if is_json else "text/plain")


def _is_stream(body: str) -> bool:
    value = _object(body)
    return value is not None and value.get("stream") is True


def _without_stream(body: str) -> str | None:
    """The same request without streaming; None if it is not a JSON object."""
    value = _object(body)
    if value is None:
        return None
    value.pop("stream_options", None)
    return json.dumps(value | {"stream": False} if "stream" in value else value)


def _object(body: str) -> dict[str, Any] | None:
    try:
        value = json.loads(body)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _headers(request: web.BaseRequest) -> dict[str, str]:
    headers = {name.title(): request.headers[name] for name in _PASSED if name in request.headers}
    if "Content-Type" in headers:
        # A parameter, such as a charset, makes the server fail.
        headers["Content-Type"] = headers["Content-Type"].partition(";")[0].strip()
    for name, value in headers.items():
        if len(value) > _MAX_HEADER:
            detail = f"the header {name} has {len(value)} characters; {_MAX_HEADER} pass HEAppE"
            raise SiteRefused(431, detail)
    return headers
