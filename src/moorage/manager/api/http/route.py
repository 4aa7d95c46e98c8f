"""Handlers' route declarations, and the call that a handler receives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Generic, Literal, Protocol, TypeVar

from aiohttp import web
from pydantic import BaseModel, Field

from moorage.common.model.roles import KeyScope
from moorage.common.model.session_access import NEEDS, Action
from moorage.common.model.spec import Model
from moorage.common.views.resources import UnreadableRow, View
from moorage.manager.api.http.dependencies import ApiServices
from moorage.manager.api.http.request import read_idempotency_key, read_if_match
from moorage.manager.identity.keys import IdempotencyKey
from moorage.manager.identity.scope import Scope

# Actions on the session that ``authorization.session_of`` finds.
SESSION_PATH = "/v1/sessions/{ref:.+}"

T = TypeVar("T")
B = TypeVar("B", bound=BaseModel | None)
Q = TypeVar("Q", bound=BaseModel)


class Items(View, Generic[T]):
    """A complete list, except for items that require a newer manager."""

    items: list[T]
    unreadable: list[UnreadableRow] = Field(
        [], description="Items that need a newer manager than the one that answered."
    )


class NoQuery(Model):
    """No query parameters."""


class Versioned(Protocol):
    @property
    def version(self) -> int: ...


W = TypeVar("W", bound=Versioned)


@dataclass(slots=True)
class Submission(Generic[B, Q]):
    """Work that somebody submits: by a request, or by a cron job that is due. ``body``: its
    description, or None; ``query``: the options of the request."""

    deps: ApiServices
    scope: Scope
    body: B
    query: Q


@dataclass(slots=True)
class Call(Submission[B, Q]):
    """One request: its scope, its validated body (None if the route has none) and its query.

    ``renew`` returns the current scope of the same credentials, or raises ``Unauthenticated`` if
    they are no longer valid. ``action`` is the route's action. ``response_headers`` are headers
    that the handler adds to the response."""

    request: web.Request
    renew: Callable[[], Awaitable[Scope]]
    action: Action | None
    response_headers: dict[str, str] = field(default_factory=dict)

    async def renew_scope(self) -> None:
        """Continue with the current scope of the same credentials."""
        self.scope = await self.renew()

    @property
    def idempotency_key(self) -> IdempotencyKey | None:
        """The request's idempotency key, if any. Raises ``InvalidInput``."""
        key = read_idempotency_key(self.request)
        return IdempotencyKey(self.scope.key.id, key) if key and self.scope.key else None

    def if_match(self, what: str) -> frozenset[int] | None:
        """Versions that ``what`` may currently have; None means any. Raises ``InvalidInput``."""
        return read_if_match(self.request, what)

    def tagged(self, view: W) -> W:
        """``view``, with its version as the ETag of the response."""
        self.response_headers["ETag"] = f'"{view.version}"'
        return view

    def path(self, name: str) -> str:
        """A decoded path parameter."""
        return self.request.match_info[name]


# The permitted callers of a route. open: anyone, without a key. viewer: every key, for resources of
# its project. member: callers that may create. owner: a member for its own resources, a project
# admin for those of the project. Other values: that role or a higher one.
Access = Literal["open", "viewer", "member", "owner", "project-admin", "auditor", "admin"]
_ADMINISTRATION = frozenset({"users", "projects", "keys"})

Answer = BaseModel | web.StreamResponse


Handler = Callable[[Call[Any, Any]], Awaitable[Answer]]
H = TypeVar("H", bound=Handler)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One row of the route table.

    ``path``: in aiohttp's syntax. ``returns``: the response model, or the media type of a response
    that is not JSON. ``access``: who may call it. ``action``: what it does to the session that its
    path names; the rules for sessions then decide. ``needs``: the scope that a key with scopes must
    have. ``location``: template of the created resource's path, filled with the fields of the
    response. ``idempotent``: accepts an Idempotency-Key. ``versioned``: accepts If-Match.
    ``takes``: the media type of a body that the handler reads itself.
    ``max_body_bytes``: bodies up to this size are read even where ``manager.max_body_bytes`` is
    smaller. ``max_body_values``: JSON values in a body; 0 means the usual limit. ``streams``: the
    answer is sent while it is made, so there is no HEAD. ``also``: error statuses in addition to
    those of every route of its kind."""

    method: str
    path: str
    handler: Handler
    summary: str
    returns: type[BaseModel] | str
    body: type[Model] | None
    takes: str
    query: type[BaseModel]
    status: int
    access: Access
    action: Action | None
    needs: KeyScope
    location: str
    idempotent: bool
    versioned: bool
    max_body_bytes: int
    max_body_values: int
    streams: bool
    also: tuple[int, ...]
    tag: str


_DECLARED: list[Route] = []


def route(
    method: str,
    path: str,
    summary: str,
    *,
    returns: type[BaseModel] | str,
    body: type[Model] | None = None,
    takes: str = "",
    query: type[BaseModel] = NoQuery,
    status: int = 200,
    access: Access | None = None,
    action: Action | None = None,
    location: str = "",
    idempotent: bool = False,
    versioned: bool = False,
    max_body_bytes: int = 0,
    max_body_values: int = 0,
    streams: bool = False,
    also: tuple[int, ...] = (),
) -> Callable[[H], H]:
    """Declare the route that the decorated handler serves, with either ``access`` or ``action``.
    The arguments are the fields of ``Route``; a test compares its models with the handler's
    signature."""
    if (access is None) == (action is None):
        raise TypeError(f"{method} {path}: give either access or action")
    if access is None:
        access = "viewer" if action is Action.SEE else "owner"

    tag = path.removeprefix("/v1/").partition("/")[0] if path.startswith("/v1/") else "service"
    needs = NEEDS[action] if action is not None else _needs(method, access, tag)

    def declare(handler: H) -> H:
        declared = Route(
            method=method,
            path=path,
            handler=handler,
            summary=summary,
            returns=returns,
            body=body,
            takes=takes,
            query=query,
            status=status,
            access=access,
            action=action,
            needs=needs,
            location=location,
            idempotent=idempotent,
            versioned=versioned,
            max_body_bytes=max_body_bytes,
            max_body_values=max_body_values,
            streams=streams,
            also=also,
            tag=tag,
        )
        _DECLARED.append(declared)
        return handler

    return declare


def _needs(method: str, access: Access, tag: str) -> KeyScope:
    if tag in _ADMINISTRATION or access in ("project-admin", "auditor", "admin"):
        return "admin"
    return "sessions:read" if method == "GET" else "sessions:write"


def routes_of(module: ModuleType) -> list[Route]:
    """The routes that a module's handlers declare, in source order."""
    return [row for row in _DECLARED if row.handler.__module__ == module.__name__]


def by_precedence(rows: Iterable[Route]) -> list[Route]:
    """Sort routes in the order in which a request is matched against them.

    Names may contain slashes, sent literally or as %2F, so a path that ends in a name also matches
    longer paths; it comes last. A resource whose name ends in ``/logs`` or the like is reachable
    only with an encoded slash."""
    return sorted(rows, key=lambda row: (row.path.endswith("}"), -row.path.count("/")))
