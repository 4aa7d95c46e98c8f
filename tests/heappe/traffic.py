"""Requests through tunnels: HttpGetToJobNode, HttpPostToJobNode and HttpPostToJobNodeStream, with
their traps."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import web

from tests.heappe.call import Call
from tests.heappe.sessions import PlainUnauthorized
from tests.heappe.tunnels import Record
from tests.heappe.wire import Member, Problem, reply, require

if TYPE_CHECKING:
    from tests.heappe.server import HeappeServer

HEADERS = Member("HttpHeaders", list, members=(Member("Name", str, 50), Member("Value", str, 100)))
COMMON = (
    Member("SessionCode", str, 50),
    Member("SubmittedTaskInfoId", int),
    Member("HttpRequest", str),
    HEADERS,
    Member("NodeIPAddress", str, 50),
    Member("NodePort", int),
)
POST = (*COMMON, Member("HttpPayload", str))
STREAM_HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "X-Accel-Buffering": "no"}


class Traffic:
    """``session`` is HEAppE's own HTTP client."""

    def __init__(self, server: HeappeServer) -> None:
        self._server = server
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        connector = aiohttp.TCPConnector(limit=0, force_close=False)
        self._session = aiohttp.ClientSession(connector=connector, auto_decompress=True)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, call: Call) -> web.Response:
        return await self._buffered(call, "GET", None)

    async def post(self, call: Call) -> web.Response:
        return await self._buffered(call, "POST", call.body.get("httppayload") or "")

    async def _buffered(self, call: Call, method: str, payload: str | None) -> web.Response:
        headers = self._headers(call)
        if method == "GET":
            require(headers, "HttpHeaders is not set.")

        self._server.remember(call)
        record = self._record(call)
        url = self._url(call, record)
        try:
            limit = aiohttp.ClientTimeout(total=self._server.timing.http_timeout_s)
            async with self._session.request(
                method, url, headers=headers, data=payload, timeout=limit
            ) as got:
                text = (await got.read()).decode("utf-8", "replace")
                status = got.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Problem("connection", "''", code="ResponseNotOk") from error

        if status != 200:
            raise Problem("connection", f"'{text}'", code="ResponseNotOk")

        return reply(text)

    def _headers(self, call: Call) -> dict[str, str]:
        given = call.body.get("httpheaders")
        if given is None:
            raise Problem("null-argument", "Value cannot be null. (Parameter 'source')")
        return {str(header.get("name") or ""): str(header.get("value") or "") for header in given}

    def _record(self, call: Call) -> Record:
        """The caller's tunnel, which must have been requested with exactly this address and
        port."""
        server = self._server
        body = call.body
        found = server.database.task(body.get("submittedtaskinfoid") or 0)
        if found is None:
            raise Problem("validation", "Task does not exist.", code="NotExistingTaskInfo")

        user = call.user()
        job, task = found
        server.sessions.require(user, job.project)
        record = server.tunnels.of(task.id, user)
        asked = (body.get("nodeipaddress"), body.get("nodeport"))
        if record is None or (record.forward.host, record.forward.node_port) != asked:
            raise Problem(
                "connection",
                "There is no active connection for the user.",
                code="NoActiveConnectionForUser",
            )

        return record

    def _url(self, call: Call, record: Record) -> str:
        path = str(call.body.get("httprequest") or "")
        return f"http://127.0.0.1:{record.forward.real_port}{path}"

    async def stream(self, call: Call) -> web.StreamResponse:
        """Answers 200 whatever happens; an error is a line in the body."""
        headers = self._headers(call)
        self._server.remember(call)
        missing = [name for name in ("httprequest", "nodeipaddress") if not call.body.get(name)]
        if missing:
            return web.Response(
                text=f"Validation failed: {missing[0]} is not set.", content_type="text/plain"
            )

        response = web.StreamResponse(headers=STREAM_HEADERS)
        response.enable_chunked_encoding()
        out = _Out(response, self._server)
        try:
            await self._relay(call, headers, out)
        except Problem as problem:
            await out.error(call, problem.code)
        except PlainUnauthorized:
            await out.error(call, "Unauthorized")
        except (aiohttp.ClientPayloadError, ConnectionResetError):
            await out.error(call, "The response ended prematurely. (ResponseEnded)")

        return response

    async def _relay(self, call: Call, headers: dict[str, str], out: _Out) -> None:
        record = self._record(call)
        kinds = [value for name, value in headers.items() if name.lower() == "content-type"]
        if kinds and ";" in kinds[0]:
            raise Problem("problem", f"The format of value '{kinds[0]}' is invalid.")

        url = self._url(call, record)
        payload = str(call.body.get("httppayload") or "")
        try:
            got = await self._session.post(
                url,
                headers=headers,
                data=payload.encode(),
                timeout=aiohttp.ClientTimeout(total=None),
            )
        except aiohttp.ClientConnectorError as error:
            raise Problem(
                "connection", f"Connection refused (localhost:{record.forward.port})"
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise Problem("connection", "An error occurred while sending the request.") from error

        async with got:
            if not 200 <= got.status < 300:
                raise Problem("connection", "ResponseNotOk")

            await out.begin(call)
            patience_s = self._server.switches.stream_idle_cut_s or None
            while True:
                try:
                    chunk = await asyncio.wait_for(got.content.readany(), patience_s)
                except TimeoutError:
                    call.abort()
                    return

                if not chunk:
                    break
                if not await out.write(chunk):
                    return

        if not out.stopped:
            await out.response.write_eof()


class _Out:
    """The body of a streamed answer, with the switches that cut, split and corrupt it."""

    def __init__(self, response: web.StreamResponse, server: HeappeServer) -> None:
        self.response = response
        self._server = server
        self._written = 0
        self._begun = False
        self.stopped = False

    async def begin(self, call: Call) -> None:
        if not self._begun:
            self._begun = True
            await self.response.prepare(call.request)

    async def write(self, chunk: bytes) -> bool:
        """Whether the stream continues."""
        switches = self._server.switches
        for limit, stop in (
            (switches.stream_error_after, self._spoil),
            (switches.stream_cut_after, self._cut),
        ):
            if limit >= 0 and self._written + len(chunk) >= limit:
                await self._send(chunk[: max(0, limit - self._written)])
                self.stopped = True
                await stop()
                return False

        await self._send(chunk)
        return True

    async def _send(self, chunk: bytes) -> None:
        size = self._server.switches.stream_split or len(chunk)
        for start in range(0, len(chunk), size or 1):
            await self.response.write(chunk[start : start + size])
            self._written += size
            if size < len(chunk):
                await asyncio.sleep(0)

    async def _spoil(self) -> None:
        await self.response.write(f"data: Error: {self._server.switches.stream_error}\n\n".encode())
        await self.response.write_eof()

    async def _cut(self) -> None:
        await self.response.write_eof()

    async def error(self, call: Call, text: str) -> None:
        with suppress(ConnectionResetError):  # the client has disconnected
            await self.begin(call)
            await self.response.write(f"data: Error: {text}\n\n".encode())
            await self.response.write_eof()
