"""Serving options of endpoints: the number of replicas, the rollout of a new revision, and request
limits."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from moorage.common.model.base import Model, Name, Seconds
from moorage.common.model.engine_features import path_problem
from moorage.common.model.errors import MoorageError

IDLE_TIMEOUT_S = 600.0
_Count = Annotated[int, Field(ge=0, le=1000)]
Rate = Annotated[int, Field(ge=0, le=1_000_000_000)]
BodySize = Annotated[int, Field(ge=1, le=1 << 40)]
_Target = Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)]


class Autoscale(Model):
    """Automatic scaling. Each configured rule computes a number of replicas; the largest applies,
    within ``min`` and ``max``."""

    min: _Count = Field(
        default=1,
        description=(
            "Minimum number of replicas. With 0, the endpoint stops when idle, and a request wakes "
            "it."
        ),
    )
    max: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=1, description="Maximum number of replicas."
    )
    waiting: _Target | None = Field(
        default=None, description="Target number of waiting requests per replica."
    )
    running: _Target | None = Field(
        default=None, description="Target number of running requests per replica."
    )
    kv_cache: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None,
        description="Target use of the KV cache, from 0 to 1, averaged over the replicas.",
    )
    request_rate: _Target | None = Field(
        default=None, description="Target number of requests per second per replica."
    )
    first_token_s: _Target | None = Field(
        default=None, description="Target p90 time to the first token, in seconds."
    )
    idle_timeout_s: Seconds = Field(
        default=IDLE_TIMEOUT_S,
        description="With `min` 0: time without a request after which the endpoint stops.",
    )
    up_cooldown_s: Annotated[float, Field(ge=0, le=86_400)] = Field(
        default=15,
        description="Minimum time before scaling up after any earlier change.",
    )
    down_delay_s: Annotated[float, Field(ge=0, le=86_400)] = Field(
        default=300,
        description=(
            "How long a smaller number of replicas must have sufficed before a replica is stopped."
        ),
    )

    @model_validator(mode="after")
    def _check_range(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"`min` is {self.min}, greater than `max`, which is {self.max}")
        return self


class Adapter(Model):
    """LoRA adapter that an endpoint's replicas load in addition to their model."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?$")] = (
        Field(description="Clients send ENDPOINT:NAME as `model`.")
    )
    source: Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00]*$")] = Field(
        description="A path on the node, or a hub id."
    )


class Fallback(Model):
    """Where an endpoint's requests go when it cannot serve them: to another model, or to an
    external provider."""

    model: Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]*$")] = (
        Field(description="Another endpoint; with `url`, the provider's name for the model.")
    )
    url: Annotated[str, Field(max_length=2048)] | None = Field(
        default=None,
        description=(
            "Base URL of an external provider of the OpenAI API, such as "
            "https://api.example.com/v1."
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

        # Imported here because the command line reads specifications without it.
        from moorage.common.model.destinations import DestinationPolicy, parse

        try:
            parsed = parse(self.url, DestinationPolicy())
        except MoorageError as error:
            raise ValueError(f"`url`: {error}") from None

        if parsed.query_string or parsed.fragment:
            raise ValueError(f"`url` is {self.url!r}; it must be a base URL without a query")

        return self


class Routing(Model):
    """How the proxies route requests for an endpoint. Changes take effect without new replicas."""

    fallbacks: Annotated[list[Fallback], Field(max_length=8)] = Field(
        default=[],
        description=(
            "Where a request goes when no replica is ready, reachable or has room. Each fallback "
            "is tried once, in this order. Another model's own fallbacks are not followed."
        ),
    )
    fallback_after_s: Annotated[float, Field(ge=0, le=86_400)] = Field(
        default=5,
        description="How long a request waits for a ready replica before it uses a fallback.",
    )
    affinity: Literal["none", "prefix"] = Field(
        default="none",
        description=(
            "prefix: requests with the same beginning go to the same replica, which has it in "
            "its cache."
        ),
    )
    max_load: Annotated[float, Field(ge=1, le=100)] = Field(
        default=1.25,
        description=(
            "Affinity: a replica gets at most this multiple of its share of the requests in flight."
        ),
    )
    max_body_bytes: BodySize | None = Field(
        default=None,
        description=(
            "Largest body of a request, in bytes. The smallest limit applies: this one, the key's "
            "`max_body_bytes`, and the setting `proxy.max_body_bytes`."
        ),
    )
    apis: Annotated[list[str], Field(max_length=32)] = Field(
        default=[],
        description=(
            "All POST paths that the engine answers, such as /v1/images/generations. Without "
            "this list, a custom engine gets requests for every API that the proxies know. "
            "custom only."
        ),
    )

    @model_validator(mode="after")
    def _check_apis(self) -> Self:
        for path in self.apis:
            if problem := path_problem(path):
                raise ValueError(f"`apis` has {path!r}: {problem}")
        return self


class ModelLimits(Model):
    """Limits on all requests to the model together, in any 60 seconds and concurrently; null means
    no limit."""

    requests_per_minute: Rate | None = None
    tokens_per_minute: Rate | None = None
    concurrent_requests: Rate | None = None


class Rollout(Model):
    """Rolling update: how replicas of a new revision replace those of the old one."""

    max_surge: _Count = Field(
        default=1, description="Replicas that may exist beyond the desired number."
    )
    max_unavailable: _Count = Field(
        default=0, description="Replicas that may be missing from the desired number."
    )
    max_failures: Annotated[int, Field(ge=1, le=20)] = Field(
        default=3,
        description=(
            "Consecutive failures of a new revision's replicas after which the revision is "
            "rolled back."
        ),
    )
    canary: Annotated[int, Field(ge=0, le=99)] = Field(
        default=0,
        description=(
            "Percentage of requests that a new revision receives until it is promoted or rolled "
            "back. With 0, it replaces the earlier revision immediately."
        ),
    )
    drain_timeout_s: Annotated[float, Field(ge=0, le=86_400)] = Field(
        default=120, description="Time that a stopping replica gets to finish its requests."
    )

    @model_validator(mode="after")
    def _check_progress(self) -> Self:
        if not self.max_surge and not self.max_unavailable:
            raise ValueError(
                "`max_surge` and `max_unavailable` are both 0, so nothing could be replaced"
            )
        return self
