"""Events of the test server (6.5): CloudEvents over a WebSocket, with a replay of the most recent
ones."""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING

from aiohttp import web

from tests.heappe.call import Call, Endpoint
from tests.heappe.site import stamp

if TYPE_CHECKING:
    from tests.heappe.server import HeappeServer

REPLAYED = 50


class Events:
    def __init__(self, server: HeappeServer) -> None:
        self._server = server
        self._last: deque[str] = deque(maxlen=REPLAYED)
        self._sockets: set[web.WebSocketResponse] = set()

    def endpoints(self) -> list[Endpoint]:
        return [Endpoint("GET", "Events", self.socket)] if self._server.profile == "6.5" else []

    async def socket(self, call: Call) -> web.StreamResponse:
        call.user()
        socket = web.WebSocketResponse()
        await socket.prepare(call.request)
        for text in list(self._last):
            await socket.send_str(text)

        self._sockets.add(socket)
        try:
            async for _ in socket:
                pass
        finally:
            self._sockets.discard(socket)

        return socket

    async def publish(self) -> None:
        """Send the changes in the database since the last call."""
        changes = self._server.database.events
        while changes:
            kind, data = changes.pop(0)
            text = json.dumps(
                {
                    "specVersion": "1.0",
                    "type": kind,
                    "source": "/heappe",
                    "id": self._server.clock.new_id(),
                    "time": stamp(self._server.clock.now(), "Z"),
                    "dataContentType": "application/json",
                    "data": data,
                }
            )
            self._last.append(text)
            for socket in list(self._sockets):
                await socket.send_str(text)

    async def close(self) -> None:
        for socket in list(self._sockets):
            await socket.close()
