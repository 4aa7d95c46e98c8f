"""Serving options of endpoints: how many replicas, and how a new revision replaces an old one."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from moorage.common.model.base import Model, Seconds

IDLE_TIMEOUT_S = 600.0
_Count = Annotated[int, Field(ge=0, le=1000)]
_Target = Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)]


class Autoscale(Model):
    """Automatic scaling. Each rule that is set asks for a number of replicas; the largest counts, within
    ``min`` and ``max``."""

    min: _Count = Field(1, description="Least number of replicas. 0: stops when idle, wakes by a request.")
    max: Annotated[int, Field(ge=1, le=1000)] = Field(1, description="Greatest number of replicas.")
    waiting: _Target | None = Field(None, description="Waiting requests per replica.")
    running: _Target | None = Field(None, description="Running requests per replica.")
    kv_cache: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None, description="Use of the KV cache, averaged over the replicas: 0 to 1."
    )
    request_rate: _Target | None = Field(None, description="Requests per second and replica.")
    first_token_s: _Target | None = Field(None, description="Time to the first token in seconds, p90.")
    idle_timeout_s: Seconds = Field(
        IDLE_TIMEOUT_S, description="With `min` 0: time without a request after which it stops."
    )
    up_cooldown_s: Annotated[float, Field(ge=0, le=86_400)] = Field(
        15, description="Least time between two changes upward, and between a change and one upward."
    )
    down_delay_s: Annotated[float, Field(ge=0, le=86_400)] = Field(
        300, description="How long fewer replicas must have been enough before one is stopped."
    )

    @model_validator(mode="after")
    def _check_range(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"`min` is {self.min}, greater than `max`, which is {self.max}")
        return self


class Rollout(Model):
    """Rolling update: how replicas of a new revision replace those of the old one."""

    max_surge: _Count = Field(1, description="Replicas that may exist beyond the wanted number.")
    max_unavailable: _Count = Field(0, description="Replicas that may be missing from the wanted number.")
    max_failures: Annotated[int, Field(ge=1, le=20)] = Field(
        3, description="Replicas of a new revision that may fail in a row before it is rolled back."
    )
    drain_timeout_s: Annotated[float, Field(ge=0, le=86_400)] = Field(
        120, description="How long a replica that is to stop may finish its requests."
    )

    @model_validator(mode="after")
    def _check_progress(self) -> Self:
        if not self.max_surge and not self.max_unavailable:
            raise ValueError("`max_surge` and `max_unavailable` are both 0, so nothing could be replaced")
        return self
