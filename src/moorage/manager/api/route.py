"""Rows of the route table, and the call that a handler receives."""

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
    """A complete list."""

    items: list[T]


class NoQuery(Model):
    """No query parameters."""


@dataclass(frozen=True, slots=True)
class Call(Generic[B, Q]):
    """One request: its API key, its validated body (None if the route has none) and its query.

    ``response_headers``: headers that the handler adds to the response.
    """

    request: web.Request
    deps: ApiServices
    key: ApiKey | None
    body: B
    query: Q
    response_headers: dict[str, str] = field(default_factory=dict)

    @property
    def actor(self) -> str:
        """The caller's name in histories."""
        return f"key:{self.key.name}" if self.key else "anonymous"

    @property
    def owner(self) -> Owner:
        """The owner of everything that this request creates."""
        return self.key.owner if self.key else Owner("anonymous")

    @property
    def idempotency_key(self) -> IdempotencyKey | None:
        """The request's idempotency key, if any. Raises ``InvalidInput``."""
        key = read_idempotency_key(self.request)
        return IdempotencyKey(self.key.id, key) if key and self.key else None

    def path(self, name: str) -> str:
        """A path parameter, decoded."""
        return self.request.match_info[name]


Answer = BaseModel | web.StreamResponse


@dataclass(frozen=True, slots=True)
class Route:
    """One row of the route table.

    ``path``: in aiohttp's syntax. ``answer``: the response model, or the media type of a response that is not
    JSON. ``access``: open to everyone, any API key, or an administrator's. ``location``: template of the
    created resource's path, filled with the fields of the response. ``idempotent``: accepts an
    Idempotency-Key. ``dry_run``: the response model of ``?dry_run=true``, which is sent with 200.
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
    """A row of the table. A test compares its models with the handler's signature."""
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
