"""Settings about agents that only dial out."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from moorage.common.config.fields import Address

Reach = Literal["auto", "direct", "dial-out"]


class ReachSettings(BaseModel):
    reach: Reach = "direct"
    """How proxies reach the kernels of this agent. ``direct``: at ``address``. ``dial-out``: over
    connections that the agent opens to ``proxy.dialout_address`` of each proxy, for a node behind
    NAT or a firewall. ``auto`` is for agents of the previous release, and goes with the next one:
    directly, unless the agent does not connect from its ``address`` and a proxy takes its
    connections."""


class DialOutSettings(BaseModel):
    dialout_listen: Address | None = None
    """Address for connections of agents that proxies cannot reach, such as 0.0.0.0:8802. Worker N
    listens at a port that is N greater. None: off."""
    dialout_address: Address | None = None
    """Address at which agents reach ``dialout_listen``. None: as it is, with the address of this
    host on the route to the manager in place of 0.0.0.0."""
