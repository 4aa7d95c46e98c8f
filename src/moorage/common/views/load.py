"""REST models of load over time: of endpoints, nodes and devices."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from moorage.common.views.resources import View

LoadStep = Literal["minute", "5-minutes", "hour", "day"]


class EndpointLoad(View):
    """Load of an endpoint over time. All lists have one value for each step in ``at``; a step
    without samples is missing. Requests and tokens are sums, all other values are means."""

    name: str
    since: datetime
    until: datetime
    step: LoadStep
    at: list[int] = Field(default=[], description="Starts of the steps, in Unix seconds.")
    covered_s: list[float] = Field(
        default=[],
        description="For how many seconds of the step requests and tokens were counted.",
    )
    requests: list[int] = Field(default=[], description="Requests that started.")
    errors: list[int] = Field(default=[], description="Responses with a status of 500 or more.")
    tokens_in: list[int] = Field(
        default=[], description="Tokens of prompts; 0 while `proxy.metering` is off."
    )
    tokens_out: list[int] = Field(
        default=[], description="Tokens of answers; 0 while `proxy.metering` is off."
    )
    first_token_ms: list[float | None] = Field(
        default=[],
        description=(
            "Time to first token: mean of the 90th percentiles of a minute. null without requests."
        ),
    )
    first_token_peak_ms: list[int | None] = Field(
        default=[], description="The highest of these 90th percentiles."
    )
    running: list[float] = Field(default=[], description="Requests that replicas work on.")
    waiting: list[float] = Field(default=[], description="Requests that wait in engines.")
    held: list[float] = Field(
        default=[], description="Requests that proxies hold until a replica has room."
    )
    wanted: list[float] = Field(default=[], description="Replicas that should be there.")
    ready: list[float] = Field(default=[], description="Replicas that serve.")


class DeviceLoad(View):
    """Load of a device over time, as means. All lists have one value for each step in ``at``; null
    means that the node cannot measure it."""

    device_id: str
    at: list[int] = Field(default=[], description="Starts of the steps, in Unix seconds.")
    gpu: list[float | None] = Field(default=[], description="Utilization in 1/1000.")
    memory: list[float | None] = Field(default=[], description="Bytes in use.")
    temperature: list[float | None] = Field(default=[], description="°C.")
    power: list[float | None] = Field(default=[], description="mW.")


class AgentLoad(View):
    """Load of a node and its devices over time, as means. A step without samples is missing."""

    id: str
    since: datetime
    until: datetime
    step: LoadStep
    at: list[int] = Field(default=[], description="Starts of the steps, in Unix seconds.")
    cpu: list[float] = Field(default=[], description="CPU use of the node in 1/1000 of a core.")
    memory: list[float] = Field(default=[], description="Memory use of the node in bytes.")
    devices: list[DeviceLoad] = Field(default=[])
