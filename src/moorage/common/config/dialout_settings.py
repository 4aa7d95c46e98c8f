"""Settings for agents that only dial out."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from moorage.common.config.fields import Address

Reach = Literal["auto", "direct", "dial-out"]


class ReachSettings(BaseModel):
    reach: Reach = "direct"
    """How proxies reach the kernels of this agent. ``direct``: at ``address``. ``dial-out``: over
    connections that the agent opens to ``proxy.dialout_address`` of each proxy, for a node behind
    NAT or a firewall. ``auto`` is for agents of the previous release and will be removed in the
    next one: directly, unless the agent does not connect from its ``address`` and a proxy accepts
    its connections."""


class DialOutSettings(BaseModel):
    dialout_listen: Address | None = None
    """Address for connections from agents that proxies cannot reach, such as 0.0.0.0:8802. Worker N
    listens on this port plus N. None disables it."""
    dialout_address: Address | None = None
    """Address at which agents reach ``dialout_listen``. None means the same address, with 0.0.0.0
    replaced by this host's address on the route to the manager."""
