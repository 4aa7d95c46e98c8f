"""Relay: gives each job's engine an ordinary URL on the agent.

The proxy talks to it like to any replica: it gets the engine's status, headers and body, a stream
arrives as it is produced, and a disconnect cancels the request on the engine. Requests that HEAppE
cannot pass on are refused with a reason.

While HEAppE, the tunnel or the engine cannot be reached, requests wait. A request that the engine
certainly never received is sent afterwards. A request that it may have received is cut off, and the
proxy decides whether to send it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiohttp
import structlog
from aiohttp import web

from moorage.agent.runtimes.heappe import framing, plain
from moorage.agent.runtimes.heappe.answers import SiteRefused, cut_off, error_response
from moorage.agent.runtimes.heappe.client import HeappeClient
from moorage.agent.runtimes.heappe.errors import HeappeFailed, SiteFault, stream_failure
from moorage.agent.runtimes.heappe.reach import OUT_OF_REACH
from moorage.agent.runtimes.heappe.tunnel import TunnelKeeper, Way
from moorage.common.aio.tasks import cancel_and_wait, spawn

log = structlog.get_logger("moorage.agent.heappe")
# HEAppE accepts 5,000,000 bytes, including JSON escapes.
MAX_UPLOAD = 4_900_000
_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "transfer-encoding",
        "te",
        "trailer",
        "upgrade",
        "host",
        "content-length",
        "accept-encoding",
        "proxy-connection",
    }
)
# After these faults, the engine certainly never received the request.
UNSENT = frozenset({SiteFault.SESSION, SiteFault.NO_TUNNEL, SiteFault.TUNNEL})
_UNAVAILABLE = frozenset(
    {
        SiteFault.NO_TUNNEL,
        SiteFault.TUNNEL,
        SiteFault.NO_TUNNELS_LEFT,
        SiteFault.NOT_RUNNING,
        SiteFault.BUSY,
        SiteFault.CREDENTIALS,
    }
)
# After these faults, the engine may have received the request, but has not started to answer.
_IN_DOUBT = frozenset(
    {SiteFault.UNREACHABLE, SiteFault.GATEWAY, SiteFault.INTERNAL, SiteFault.UPSTREAM}
)
# How long a request waits for the engine: longer than a login node takes to restart, and shorter
# than the silence that proxies tolerate from a replica.
PATIENCE_S = 240.0
# The pauses between attempts to reach the engine, shared by all waiting requests.
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 5.0


class Relay:
    """A job's relay. ``keeper``: the job's tunnel, None until the job runs."""

    def __init__(
        self,
        client: HeappeClient,
        keeper: Callable[[], TunnelKeeper | None],
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._client = client
        self._keeper = keeper
        self._patience_s = patience_s
        self._server: asyncio.Server | None = None
        self._web: web.Server | None = None
        self._reaching: asyncio.Task[None] | None = None

    async def listen(self, host: str, port: int) -> None:
        """Raises ``OSError``."""
        self._web = web.Server(self._handle, handler_cancellation=True, access_log=None)
        self._server = await asyncio.get_running_loop().create_server(self._web, host, port)

    async def close(self) -> None:
        await cancel_and_wait(self._reaching)
        if self._server is not None:
            self._server.close()
        if self._web is not None:
            await self._web.shutdown(1.0)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            body = await _read(request)
            return await self._relay(request, body)
        except SiteRefused as refused:
            return error_response(refused.status, refused.message)
        except HeappeFailed as error:
            return _failed(error)

    async def _relay(self, request: web.BaseRequest, body: str) -> web.StreamResponse:
        keeper = self._keeper()
        if keeper is None:
            raise SiteRefused(503, "the job of this engine is not running yet")

        until = asyncio.get_running_loop().time() + self._patience_s
        attempt = 0
        if (known := keeper.reach.failure) is not None and keeper.gone_since is not None:
            await self._wait(keeper, until, known)

        while True:
            used = self._client.transport.session_code
            way = None
            try:
                way = await keeper.way()
                if way.framed:
                    return await self._framed(request, body, way, keeper)

                return await plain.relay_plain(
                    self._client, request, body=body, way=way, keeper=keeper
                )
            except HeappeFailed as error:
                if error.problem is SiteFault.SESSION:
                    if attempt or not await self._client.transport.renew_session(used):
                        raise
                elif _is_unseen(error) or (way is None and error.is_outage):
                    is_dead = way is not None and not attempt and error.problem in UNSENT
                    if way is None or not is_dead or not await self._renew(keeper, way, error):
                        keeper.missed(error)
                        await self._wait(keeper, until, error)
                elif way is not None and way.framed and error.problem in _IN_DOUBT:
                    keeper.missed(error)
                    await self._wait(keeper, until, error)
                    cut_off(request)
                    raise
                else:
                    keeper.missed(error)
                    raise

            attempt += 1

    async def _renew(self, keeper: TunnelKeeper, way: Way, why: HeappeFailed) -> bool:
        """Reopen the tunnel. Returns False if it currently cannot be reopened."""
        try:
            await keeper.renew(way, why.message)
        except HeappeFailed as error:
            if error.problem not in _UNAVAILABLE and not error.is_outage:
                raise
            keeper.missed(error)
            return False
        return True

    async def _wait(self, keeper: TunnelKeeper, until: float, why: HeappeFailed) -> None:
        """Wait until the engine has answered. Raises ``why`` once the request has run out of
        time."""
        if self._reaching is None or self._reaching.done():
            self._reaching = spawn("heappe.relay.reach", _reach(keeper))
        left = until - asyncio.get_running_loop().time()
        if left > 0:
            await asyncio.wait({self._reaching}, timeout=left)
        if left <= 0 or not self._reaching.done():
            raise why

    async def _framed(
        self, request: web.BaseRequest, body: str, way: Way, keeper: TunnelKeeper
    ) -> web.StreamResponse:
        headers = [
            (name, value) for name, value in request.headers.items() if name.lower() not in _HOP
        ]
        payload = framing.request(
            way.key, request.method, path=request.path_qs, headers=headers, body=body
        )
        plain_text = {"Content-Type": "text/plain"}
        async with self._client.stream(
            way.tunnel, framing.RELAY_PATH, plain_text, payload
        ) as content:
            answer = framing.AnswerDecoder()
            first = await _until_head(answer, content)
            head = answer.head
            assert head is not None
            if head.status == 0:
                raise HeappeFailed(SiteFault.UPSTREAM, f"the engine did not answer: {head.error}")

            keeper.answered()
            response = web.StreamResponse(status=head.status)
            for name, value in head.headers:
                response.headers.add(name, value)

            await response.prepare(request)
            try:
                await _pass_on(answer, first, content, response)
            except (framing.NotFramed, HeappeFailed, aiohttp.ClientError, OSError):
                pass

            if answer.complete:
                await response.write_eof()
            else:
                cut_off(request)

            return response


def _is_unseen(error: HeappeFailed) -> bool:
    """Whether the engine certainly never received the request. HEAppE answers 200 once it has
    forwarded a request. Any other status is from the gateway in front of it, or from HEAppE before
    it forwarded the request. A 504 is from a gateway that waited for the answer."""
    if error.problem in _UNAVAILABLE or error.unsent:
        return True

    return error.problem in (SiteFault.GATEWAY, SiteFault.INTERNAL) and error.status not in (
        0,
        200,
        504,
    )


async def _reach(keeper: TunnelKeeper) -> None:
    """Reach the engine. This is shared by all waiting requests, so the server is asked only
    once."""
    before = keeper.reach.answered_at
    pause_s = _FIRST_PAUSE_S
    while True:
        await asyncio.sleep(pause_s)
        await keeper.check(0)
        if keeper.reach.answered_at != before:
            return
        pause_s = min(1.5 * pause_s, _LONGEST_PAUSE_S)


async def _pass_on(
    answer: framing.AnswerDecoder,
    first: bytes,
    content: aiohttp.StreamReader,
    response: web.StreamResponse,
) -> None:
    piece = first
    while True:
        if piece:
            await response.write(piece)
        if answer.complete or not (data := await content.readany()):
            return

        piece = answer.feed(data)


async def _until_head(answer: framing.AnswerDecoder, content: aiohttp.StreamReader) -> bytes:
    """Read until the status is known. Returns the part of the body that arrived with it."""
    first = b""
    try:
        while answer.head is None:
            data = await content.readany()
            if not data:
                raise HeappeFailed(SiteFault.UPSTREAM, "the answer ended before its status")

            first = answer.feed(data)
    except framing.NotFramed as error:
        text = error.text + (await content.read(2000)).decode(errors="replace")
        said = framing.failure_in(text)
        raise stream_failure(text[:200] if said is None else said) from None

    return first


async def _read(request: web.BaseRequest) -> str:
    """The body as text. Raises ``SiteRefused`` for a request that HEAppE cannot pass on."""
    if request.headers.get("Upgrade"):
        raise SiteRefused(
            501, "WebSockets cannot pass HEAppE; use an agent of another kind for this model"
        )

    parts = []
    size = 0
    async for part in request.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > MAX_UPLOAD:
            raise SiteRefused(
                413, f"the body is larger than {MAX_UPLOAD} bytes, the most that passes HEAppE"
            )

    try:
        return b"".join(parts).decode()
    except UnicodeDecodeError:
        raise SiteRefused(
            415, "binary bodies cannot pass HEAppE; send text, such as JSON with base64"
        ) from None


def _failed(error: HeappeFailed) -> web.Response:
    if error.problem is SiteFault.TOO_LARGE:
        return error_response(
            413, "the body is larger than HEAppE's limit of 5,000,000 bytes as JSON"
        )

    # The site's message is for its operators, because it contains their addresses and ports.
    log.info("a request did not reach its engine", why=error.message)
    if error.problem in OUT_OF_REACH:
        status = 503 if error.problem in _UNAVAILABLE or error.unsent else 502
        text = "the engine of this model cannot be reached through its site at present"
        return error_response(status, text, {"Retry-After": "5"} if status == 503 else None)

    if error.problem is SiteFault.UPSTREAM:
        return error_response(502, "the engine of this model did not answer")

    return error_response(502, "the site of this model refused the request")
