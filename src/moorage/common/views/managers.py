"""REST models of the managers of a database."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field


class ManagerView(BaseModel):
    """A manager that shows signs of life. One that has stopped is listed for three seconds more."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    id: str
    link: str = Field(
        description=(
            "gRPC address, `manager.link_address`: agents, proxies and other managers "
            "reach it there."
        )
    )
    version: str
    started_at: datetime
    leader: bool = Field(description="Whether it holds the lease: it alone schedules.")
    term: int | None = Field(description="Term of its lease; null unless it leads.")
    agents: int = Field(description="How many agents are connected to it.")
    proxies: list[str] = Field(description="Names of the proxies that are connected to it.")
    answers: bool = Field(description="Whether this manager answers this request.")
