"""Connector: opens connections to replicas and apps, by TCP or as streams over dial-out
connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

import aiohttp
from aiohttp.client_exceptions import ClientConnectorError
from aiohttp.client_proto import ResponseHandler

from moorage.common.http.exclusive import ExclusiveConnector
from moorage.common.model.addresses import is_dial_out_host
from moorage.proxy.dialout.listener import DialOutListener, Opened

_READ_LIMIT = 64 * 1024


class Connector:
    """``listener``: None until ``take_streams_of`` is called, which means that no agent can dial
    out to this proxy. ``on_failure`` is called with hosts that cannot be connected to."""

    def __init__(self, on_failure: Callable[[str], None] = lambda _: None) -> None:
        self._on_failure = on_failure
        self.listener: DialOutListener | None = None

    def take_streams_of(self, listener: DialOutListener) -> None:
        """Use ``listener`` to reach the agents that have dialed out to it."""
        self.listener = listener

    async def open(self, factory: Callable[[], asyncio.Protocol], host: str, port: int) -> Opened:
        """Connect a protocol to a port of an agent. Raises ``OSError``."""
        if not is_dial_out_host(host):
            try:
                return await asyncio.get_running_loop().create_connection(factory, host, port)
            except (OSError, asyncio.CancelledError):  # cancelled by the time limit
                self._on_failure(host)
                raise

        if self.listener is None:
            raise ConnectionRefusedError(
                "its agent only dials out, and proxy.dialout_listen is not set at this proxy"
            )

        return await self.listener.open(factory, host, port)

    def revoked(self, agents: Collection[str]) -> None:
        """Close and refuse connections of revoked agents, given by their peer ids."""
        if self.listener is not None:
            self.listener.revoke(agents)

    async def open_streams(
        self, host: str, port: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open streams like ``asyncio.open_connection``."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_READ_LIMIT, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport, _ = await self.open(lambda: protocol, host, port)
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


class DialOutConnector(ExclusiveConnector):
    """The connector for aiohttp."""

    def __init__(self, connector: Connector, **options: Any) -> None:
        super().__init__(**options)
        self._connector = connector

    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: Any, timeout: aiohttp.ClientTimeout
    ) -> ResponseHandler:
        host = req.url.raw_host or ""
        port = req.url.port or 80
        if not is_dial_out_host(host):
            return await super()._create_connection(req, traces, timeout)

        try:
            async with asyncio.timeout(timeout.sock_connect):
                _, protocol = await self._connector.open(self._factory, host, port)
        except TimeoutError as error:
            raise aiohttp.ConnectionTimeoutError(f"Connection timeout to host {req.url}") from error
        except OSError as error:
            raise ClientConnectorError(req.connection_key, error) from error

        assert isinstance(protocol, ResponseHandler)
        return protocol
