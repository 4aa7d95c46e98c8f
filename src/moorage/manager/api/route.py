"""One row of the route table, and what a handler is given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from aiohttp import web
from pydantic import BaseModel

from moorage.common.model.spec import Model
from moorage.common.views.resources import View
from moorage.manager.api.dependencies import ApiServices
from moorage.manager.api.request import read_idempotency_key
from moorage.manager.identity.keys import ApiKey, IdempotencyKey, Owner

T = TypeVar("T")
B = TypeVar("B", bound=BaseModel | None)
Q = TypeVar("Q", bound=BaseModel)


class Items(View, Generic[T]):
    """A whole listing."""

    items: list[T]


class NoQuery(Model):
    """No query parameters."""


@dataclass(frozen=True, slots=True)
class Call(Generic[B, Q]):
    """One request: who asks, the validated body (None where the route has none) and query.

    ``answer_headers``: what a handler wants to say beside its answer.
    """

    request: web.Request
    deps: ApiServices
    key: ApiKey | None
    body: B
    query: Q
    answer_headers: dict[str, str] = field(default_factory=dict)

    @property
    def actor(self) -> str:
        """Who asks, as the history names it."""
        return f"key:{self.key.name}" if self.key else "anonymous"

    @property
    def owner(self) -> Owner:
        """Whose is what is made by this request."""
        return self.key.owner if self.key else Owner("anonymous")

    @property
    def idempotency_key(self) -> IdempotencyKey | None:
        """The Idempotency-Key under which this may be sent again, if any. Raises ``InvalidInput``."""
        key = read_idempotency_key(self.request)
        return IdempotencyKey(self.key.id, key) if key and self.key else None

    def path(self, name: str) -> str:
        """A part of the path, decoded."""
        return self.request.match_info[name]


Answer = BaseModel | web.StreamResponse


@dataclass(frozen=True, slots=True)
class Route:
    """``path`` as aiohttp reads it. ``answer``: the model of the answer, or its media type if it is not JSON.

    ``access``: open to all, any key, or an administrator's. ``location``: where a created thing is,
    filled with the fields of the answer. ``idempotent``: it takes an Idempotency-Key. ``dry_run``: what is
    answered, with 200, to ``?dry_run=true``.
    """

    method: str
    path: str
    handler: Callable[[Call[Any, Any]], Awaitable[Answer]]
    summary: str
    answer: type[BaseModel] | str
    body: type[BaseModel] | None
    query: type[BaseModel]
    status: int
    access: Literal["open", "member", "admin"]
    location: str
    idempotent: bool
    dry_run: type[BaseModel] | None
    tag: str


def route(
    method: str,
    path: str,
    handler: Callable[[Call[B, Q]], Awaitable[Answer]],
    summary: str,
    answer: type[BaseModel] | str,
    *,
    body: type[B] | None = None,
    query: type[Q] | type[NoQuery] = NoQuery,
    status: int = 200,
    access: Literal["open", "member", "admin"] = "member",
    location: str = "",
    idempotent: bool = False,
    dry_run: type[BaseModel] | None = None,
) -> Route:
    """A row of the table. A test holds its models equal to those in the handler's signature."""
    tag = path.removeprefix("/v1/").partition("/")[0] if path.startswith("/v1/") else "service"
    model: Any = body
    return Route(
        method,
        path,
        handler,
        summary,
        answer,
        model,
        query,
        status,
        access,
        location,
        idempotent,
        dry_run,
        tag,
    )
