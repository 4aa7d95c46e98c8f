"""Reach of this manager's agents: the hosts at which proxies find their kernels."""

from __future__ import annotations

import grpc

from moorage.manager.rpc.agent_stream import AgentStream, StreamRefused
from moorage.manager.rpc.peer_addresses import PeerAddresses, source_of
from moorage.manager.store import Store


class ReachControl:
    """``proxies``: addresses at which the proxies of all managers accept connections that agents
    dial out."""

    def __init__(self, addresses: PeerAddresses, store: Store) -> None:
        self._addresses = addresses
        self._store = store
        self.proxies: tuple[str, ...] = ()

    def set_proxies(self, proxies: tuple[str, ...]) -> None:
        self.proxies = proxies

    async def bind(self, stream: AgentStream, peer: str) -> None:
        """Find the host at which a connected agent is reached.

        Raises ``StreamRefused`` for an agent that may not report its address."""
        reach = stream.first.info.reach
        host = None
        why = ""
        if reach != "dial-out":
            host = await self._addresses.bind(stream.agent_id, stream.address, peer)

        if host is not None and reach == "auto" and self.proxies:
            # A manager of the previous release may have ordered it to dial out, because proxies
            # could not reach it.
            stored, stored_why = await self._store.managers.address_of_agent(stream.agent_id)
            if stored == stream.dial_out_host:
                host = stream.dial_out_host
                why = stored_why

        if host is None and reach == "dial-out":
            host = stream.dial_out_host
            why = "agent.reach is dial-out"

        if host is None and reach == "auto" and self.proxies:
            host = stream.dial_out_host
            why = (
                f"its link comes from {source_of(peer)}, not from agent.address = "
                f"{stream.address[:80]}"
            )

        if host is None:
            raise StreamRefused(
                grpc.StatusCode.PERMISSION_DENIED,
                f"agent.address = {stream.address[:80]!r} is not the source of this connection, "
                f"which is {source_of(peer)}: set agent.address to that, or allow the address at "
                "the manager with manager.agent_addresses = "
                f'["{stream.agent_id}={stream.address[:80]}"]; or set agent.reach = "dial-out" '
                "and proxy.dialout_listen at every proxy",
            )

        stream.bind(host, why)
