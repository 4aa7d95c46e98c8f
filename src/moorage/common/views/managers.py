"""REST models for the managers that share a database."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field


class ManagerView(BaseModel):
    """Manager that shows signs of life. A stopped manager is listed for three more seconds."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    id: str
    link: str = Field(
        description=(
            "gRPC address, `manager.link_address`, at which agents, proxies and other managers "
            "reach it."
        )
    )
    version: str
    started_at: datetime
    leader: bool = Field(description="Whether it holds the lease; only the holder schedules.")
    term: int | None = Field(description="Its lease's term; null unless it leads.")
    agents: int = Field(description="Number of agents connected to it.")
    proxies: list[str] = Field(description="Names of the proxies connected to it.")
    answers: bool = Field(description="Whether this manager answered this request.")
