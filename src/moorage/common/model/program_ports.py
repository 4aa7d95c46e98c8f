"""A program's ports as users write them: its readiness probe and its service ports."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from moorage.common.model import service_ports
from moorage.common.model.base import Model
from moorage.common.model.service_ports import ServicePort


class Probe(Model):
    """Readiness probe of a ``custom`` engine: an HTTP GET of ``path`` returns 2xx."""

    path: Annotated[str, Field(pattern=r"^/[\x21-\x7e]*$", max_length=2048)] = "/"
    period_s: Annotated[float, Field(gt=0, le=60)] = 0.5


class Port(Model):
    """Service port: a network service of the session, published through the proxy."""

    name: Annotated[
        str, Field(pattern=service_ports.NAME_PATTERN, max_length=service_ports.NAME_LENGTH)
    ]
    port: Annotated[int, Field(ge=1, le=65535)] | None = Field(
        default=None,
        description=(
            "Port on which the program listens, for containers only. If absent, a port is assigned "
            "and passed as MOORAGE_PORT_<NAME> and `{port:NAME}`. Processes always get an "
            "assigned port."
        ),
    )
    protocol: Literal["http", "tcp"] = Field(default="http", description="http includes WebSocket.")
    base_path: bool = Field(
        default=False,
        description=(
            "The program serves paths below /apps/SESSION/NAME (MOORAGE_PATH_<NAME>, "
            "`{path:NAME}`), so the proxy keeps this prefix. Otherwise the proxy removes it."
        ),
    )

    guarded: bool = Field(
        default=False,
        description=(
            "The proxy adds `Authorization: Bearer` with the session's key, which the program "
            "finds in MOORAGE_SECRET. The program can then reject other users of the node."
        ),
    )

    def declared(self) -> ServicePort:
        return ServicePort(
            self.name,
            self.port or 0,
            protocol=self.protocol,
            base_path=self.base_path,
            guarded=self.guarded,
        )
