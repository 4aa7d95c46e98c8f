"""Probe port: tells a proxy that connects that it has reached this agent, so that it need not dial
out."""

from __future__ import annotations

import asyncio

from moorage.agent.state.ports import NoFreePort, PortAllocator
from moorage.common.dialout.probe import greeting

_ATTEMPTS = 3


class ProbePort:
    """One of the ports of kernels, which a firewall treats as theirs, at the address where they
    listen. It is open from the first ``open`` on."""

    def __init__(self, agent_id: str, host: str, ports: PortAllocator) -> None:
        self.host = host
        self._agent_id = agent_id
        self._ports = ports
        self._server: asyncio.Server | None = None
        self._port = 0

    async def open(self) -> int:
        """Its number; 0: no port is free."""
        for _ in range(_ATTEMPTS):
            if self._port:
                break
            await self._listen()
        return self._port

    async def _listen(self) -> None:
        try:
            port = self._ports.allocate()
        except NoFreePort:
            return

        try:
            server = await asyncio.start_server(self._greet, self.host, port)
        except OSError:  # somebody has just taken it
            self._ports.release(port)
            return

        if self._port:  # another call was faster
            server.close()
            self._ports.release(port)
        else:
            self._server = server
            self._port = port

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._ports.release(self._port)
            self._server = None
            self._port = 0

    async def _greet(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting(self._agent_id))
        writer.close()
