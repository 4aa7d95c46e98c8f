"""Serving options of endpoints: how many replicas, how a new revision replaces an old one, and
limits of requests."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from moorage.common.model.base import Model, Name, Seconds
from moorage.common.model.errors import MoorageError

IDLE_TIMEOUT_S = 600.0
_Count = Annotated[int, Field(ge=0, le=1000)]
Rate = Annotated[int, Field(ge=0, le=1_000_000_000)]
_Target = Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)]


class Autoscale(Model):
    """Automatic scaling. Each rule that is set asks for a number of replicas; the largest counts,
    within ``min`` and ``max``."""

    min: _Count = Field(
        default=1, description="Least number of replicas. 0: stops when idle, wakes by a request."
    )
    max: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=1, description="Greatest number of replicas."
    )
    waiting: _Target | None = Field(default=None, description="Waiting requests per replica.")
    running: _Target | None = Field(default=None, description="Running requests per replica.")
    kv_cache: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, description="Use of the KV cache, averaged over the replicas: 0 to 1."
    )
    request_rate: _Target | None = Field(
        default=None, description="Requests per second and replica."
    )
    first_token_s: _Target | None = Field(
        default=None, description="Time to the first token in seconds, p90."
    )
    idle_timeout_s: Seconds = Field(
        default=IDLE_TIMEOUT_S,
        description="With `min` 0: time without a request after which it stops.",
    )
    up_cooldown_s: Annotated[float, Field(ge=0, le=86_400)] = Field(
        default=15,
        description="Least time between two changes upward, and between a change and one upward.",
    )
    down_delay_s: Annotated[float, Field(ge=0, le=86_400)] = Field(
        default=300,
        description="How long fewer replicas must have been enough before one is stopped.",
    )

    @model_validator(mode="after")
    def _check_range(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"`min` is {self.min}, greater than `max`, which is {self.max}")
        return self


class Adapter(Model):
    """LoRA adapter that the replicas of an endpoint load beside their model."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?$")] = (
        Field(description="Clients send ENDPOINT:NAME as `model`.")
    )
    source: Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00]*$")] = Field(
        description="A path on the node, or a hub id."
    )


class Fallback(Model):
    """Where requests go that an endpoint cannot serve: to another model, or to an outside
    provider."""

    model: Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]*$")] = (
        Field(description="Another endpoint; with `url`, what the provider calls the model.")
    )
    url: Annotated[str, Field(max_length=2048)] | None = Field(
        default=None,
        description=(
            "Base URL of an outside provider of OpenAI's API, such as https://api.example.com/v1."
        ),
    )
    secret: Name | None = Field(
        default=None, description="Stored secret of the project with the provider's API key."
    )

    @property
    def shown(self) -> str:
        return f"{self.model} at {self.url}" if self.url else self.model

    @model_validator(mode="after")
    def _check_provider(self) -> Self:
        if self.url is None:
            if self.secret is not None:
                raise ValueError("`secret` is the API key of a provider; it requires `url`")
            return self

        # Imported here: the command line reads specs without it.
        from moorage.common.http.destinations import DestinationPolicy, parse

        try:
            parsed = parse(self.url, DestinationPolicy())
        except MoorageError as error:
            raise ValueError(f"`url`: {error}") from None

        if parsed.query_string or parsed.fragment:
            raise ValueError(f"`url` is {self.url!r}; it must be a base URL without a query")

        return self


class Routing(Model):
    """How the proxies route requests for an endpoint. A change needs no new replicas."""

    fallbacks: Annotated[list[Fallback], Field(max_length=8)] = Field(
        default=[],
        description="Where a request goes when no replica is ready, can be reached or has room: "
        "each once, "
        "in this order. Those of another model are not followed.",
    )
    fallback_after_s: Annotated[float, Field(ge=0, le=86_400)] = Field(
        default=5, description="How long a request waits for a ready replica before it falls back."
    )
    affinity: Literal["none", "prefix"] = Field(
        default="none",
        description=(
            "prefix: requests that begin alike go to the same replica, which has them cached."
        ),
    )
    max_load: Annotated[float, Field(ge=1, le=100)] = Field(
        default=1.25,
        description=(
            "Affinity: how many times its share of the requests in flight a replica gets at most."
        ),
    )


class ModelLimits(Model):
    """Limits of all requests for the model together, in any 60 seconds and at one time; null: no
    limit."""

    requests_per_minute: Rate | None = None
    tokens_per_minute: Rate | None = None
    concurrent_requests: Rate | None = None


class Rollout(Model):
    """Rolling update: how replicas of a new revision replace those of the old one."""

    max_surge: _Count = Field(
        default=1, description="Replicas that may exist beyond the wanted number."
    )
    max_unavailable: _Count = Field(
        default=0, description="Replicas that may be missing from the wanted number."
    )
    max_failures: Annotated[int, Field(ge=1, le=20)] = Field(
        default=3,
        description="Replicas of a new revision that may fail in a row before it is rolled back.",
    )
    canary: Annotated[int, Field(ge=0, le=99)] = Field(
        default=0,
        description="Percentage of the requests that a new revision gets, until it is promoted or "
        "undone. "
        "0: it replaces the one before at once.",
    )
    drain_timeout_s: Annotated[float, Field(ge=0, le=86_400)] = Field(
        default=120, description="How long a replica that is to stop may finish its requests."
    )

    @model_validator(mode="after")
    def _check_progress(self) -> Self:
        if not self.max_surge and not self.max_unavailable:
            raise ValueError(
                "`max_surge` and `max_unavailable` are both 0, so nothing could be replaced"
            )
        return self
