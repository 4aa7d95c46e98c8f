"""Admission of requests for models, first by their head and then by their body. Pure.

The checks run in a fixed order: path (404), method (405), route table present (503), key (401),
size (413), encoding (415), JSON body (400), model known (404), replica ready (503).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qs

from moorage.common.http.cors import Pairs
from moorage.common.link.messages import KeyGrant, ModelRoute
from moorage.common.model.kernel import ENGINES as _ENGINES
from moorage.proxy.core import error_response
from moorage.proxy.core.affinity import SESSION
from moorage.proxy.core.apis import (
    MODELS,
    REALTIME,
    RESPONSES,
    engines_of,
    is_form,
    methods_of,
    similar_path,
    speaks_anthropic,
    split_azure,
    split_project,
    stored_id,
)
from moorage.proxy.core.body_expander import request_coding
from moorage.proxy.core.body_limit import (
    BodyLimit,
    limit_of_any,
    limit_of_head,
    limit_of_route,
    model_in_beginning,
)
from moorage.proxy.core.body_model import Renamed, renamed, with_model_added
from moorage.proxy.core.error_response import ErrorResponse
from moorage.proxy.core.headers import bearer_key, key_in_protocols
from moorage.proxy.core.health import HEALTH, health_json
from moorage.proxy.core.member_scan import IS_COMPILED
from moorage.proxy.core.model_list import Loads, ModelFormat, list_models, show_model
from moorage.proxy.core.model_names import NO_NAMES, ModelNames
from moorage.proxy.core.permit import Permit
from moorage.proxy.core.request_body import (
    WHOLE_BYTES,
    WHOLE_ESCAPES,
    LargeBody,
    LargeForm,
    LargeReader,
    json_type,
    parse,
    read_form,
    read_json,
    some_members,
)
from moorage.proxy.core.response_homes import Home
from moorage.proxy.core.routes import IndexedTable

# Engines whose APIs are known. A ``custom`` engine can have any APIs.
ENGINES = frozenset(_ENGINES) - {"custom"}
MOST_PERMITS = 64
"""A decision about one head."""
NO_BODY = BodyLimit(0)
"""The limit of a request that becomes a WebSocket."""


@dataclass(frozen=True, slots=True)
class AdmissionPolicy:
    """The settings that govern admission. ``version``: of the proxy. ``loads``: the newest loads of
    engines, which lists of models show."""

    requires_key: bool
    max_body_bytes: int
    version: str = ""
    names: ModelNames = NO_NAMES
    loads: Loads = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LocalResponse:
    """A response from the proxy itself: JSON, or no body at all with the status 204."""

    body: bytes
    status: int = 200


class BodyRequired:
    """The head is admitted. Read the body and call ``admit_body``. ``key``: None if no key is
    required. ``project``: the project in the address; empty for the common address.
    ``wants_progress``: the client asks for comments while a stream waits for its model.
    ``content_type``: a form's content type, otherwise empty. ``response_id``: the id of the
    requested stored response, otherwise empty. ``is_anthropic``: errors have Anthropic's format.
    ``upgrades``: the request becomes a WebSocket. ``model``: the model in the address, otherwise
    empty. ``session``: the session named by the client, whose requests go to one replica.
    ``permits``: granted permits by model. ``cors``: headers of every answer, for browsers.
    ``limit``: of the body, as far as the head determines it. ``coding``: how
    the body is compressed, empty if it is not."""

    __slots__ = (
        "coding",
        "content_type",
        "cors",
        "is_anthropic",
        "key",
        "limit",
        "method",
        "model",
        "path",
        "permits",
        "project",
        "response_id",
        "session",
        "upgrades",
        "wants_progress",
    )

    def __init__(
        self,
        path: str,
        key: KeyGrant | None = None,
        project: str = "",
        wants_progress: bool = False,
        *,
        content_type: str = "",
        method: str = "POST",
        response_id: str = "",
        is_anthropic: bool = False,
        upgrades: bool = False,
        model: str = "",
        session: str = "",
        limit: BodyLimit | None = None,
        coding: str = "",
    ) -> None:
        self.path = path
        self.key = key
        self.project = project
        self.method = method
        self.wants_progress = wants_progress
        self.content_type = content_type
        self.response_id = response_id
        self.is_anthropic = is_anthropic
        self.upgrades = upgrades
        self.model = model
        self.session = session
        self.limit = NO_BODY if limit is None else limit
        self.coding = coding
        self.permits: dict[str, Permit] = {}
        self.cors: Pairs = ()

    def __eq__(self, other: object) -> bool:
        """Compare without the permits and the limit, which follow from the rest and the table."""
        return isinstance(other, BodyRequired) and self._all() == other._all()

    def __hash__(self) -> int:
        return hash(self._all())

    def _all(self) -> tuple[object, ...]:
        client = self.path, self.key, self.project, self.wants_progress, self.session
        request = self.content_type, self.method, self.response_id, self.upgrades, self.model
        return (*client, *request, self.is_anthropic, self.coding)

    def with_key(self, key: KeyGrant) -> BodyRequired:
        """The same decision with the key's current rights."""
        renewed = BodyRequired(
            self.path,
            key,
            self.project,
            self.wants_progress,
            content_type=self.content_type,
            method=self.method,
            response_id=self.response_id,
            is_anthropic=self.is_anthropic,
            upgrades=self.upgrades,
            model=self.model,
            session=self.session,
            limit=self.limit,
            coding=self.coding,
        )
        renewed.cors = self.cors
        return renewed

    @property
    def reads_answer(self) -> bool:
        """Whether the proxy reads the replica's answer, which must not be compressed."""
        return self.wants_progress or self.path.startswith(RESPONSES)


class Forward:
    """Send the client's exact bytes to ``path`` at a replica of the model in ``permit``.
    ``members``: the body's members that are read from all requests. ``body``: set if there may be
    other members. ``home``: the only replica that has the stored response to which the request
    refers. ``model_span``: the position of the model's name, if known (``body_model``).
    ``renamed``: the body to send instead of the client's, if it named an alias or no model."""

    __slots__ = ("_body", "home", "members", "model_span", "path", "permit", "renamed")

    def __init__(
        self,
        permit: Permit,
        path: str,
        members: Mapping[str, object],
        home: Home | None = None,
        *,
        body: bytes | None = None,
        model_span: tuple[int, int] | None = None,
    ) -> None:
        self.permit = permit
        self.path = path
        self.members = members
        self.home = home
        self._body = body
        self.model_span = model_span
        self.renamed: bytes | None = None

    def at(self, home: Home) -> Forward:
        """The same request for this replica only."""
        self.home = home
        return self

    def rename(self, renamed: Renamed) -> None:
        """Send another body."""
        self.renamed = renamed.body
        self.model_span = renamed.span

    @property
    def document(self) -> Mapping[str, object]:
        """The parsed body; for a large one, only the members that are read."""
        if (body := self._body) is not None:
            document = parse(body)
            self._body = None
            assert isinstance(document, dict)
            self.members = document
        return self.members

    @property
    def route(self) -> ModelRoute:
        return self.permit.route

    @property
    def model(self) -> str:
        return self.permit.name


def admit_head(
    method: str,
    path: str,
    headers: Mapping[str, str],
    size: int | None,
    *,
    table: IndexedTable | None,
    policy: AdmissionPolicy,
    unix_now: float,
    query: str = "",
) -> ErrorResponse | LocalResponse | BodyRequired:
    """Check a request before its body is read.

    ``headers`` must be case-insensitive. ``size`` is the announced body length in bytes, None if
    unknown. ``query``: the unparsed query string, without ``?``.
    """
    whole = path
    project, path = split_project(path)
    model, path = split_azure(path)
    allowed = methods_of(path, () if table is None else table.apis)
    if not allowed:
        if table is None and method == "POST":
            return error_response.no_table()  # an endpoint may list the path

        meant = similar_path(path)
        prefix = whole.removesuffix(path)
        return error_response.unknown_url(method, whole, f"{prefix}{meant}" if meant else "")
    if method not in allowed:
        return error_response.method_not_allowed(method, path, ", ".join(allowed))
    if table is None:
        return error_response.no_table()

    if path in HEALTH:
        return LocalResponse(health_json(path, policy.version))

    key = None
    if policy.requires_key:
        found = _find_key(headers, table, unix_now)
        if isinstance(found, ErrorResponse):
            return found

        key = found

    if project and key is not None and not key.admin and key.project != project:
        return error_response.other_project(project)

    is_anthropic = speaks_anthropic(path, headers)
    if path.startswith(MODELS):
        caller = RequestCaller(key, project, policy.names)
        shape = ModelFormat(is_anthropic, policy.loads)
        return _models(path, query, table=table, caller=caller, shape=shape)

    if path == REALTIME:
        return _admit_realtime(
            path, key, project=project, method=method, headers=headers, query=query
        )

    limit = limit_of_head(policy.max_body_bytes, key)
    coding = _too_large(size, limit, key, model, table=table) or request_coding(headers)
    if isinstance(coding, ErrorResponse):
        return coding

    wants_progress = headers.get("X-Moorage-Progress") == "1"
    content_type = headers.get("Content-Type", "")
    return BodyRequired(
        path,
        key,
        project=project,
        wants_progress=wants_progress,
        content_type=content_type if is_form(path, content_type) else "",
        method=method,
        response_id=stored_id(path),
        is_anthropic=is_anthropic,
        model=model,
        session=headers.get(SESSION, "")[:256],
        limit=limit,
        coding=coding,
    )


def _too_large(
    size: int | None, limit: BodyLimit, key: KeyGrant | None, model: str, *, table: IndexedTable
) -> ErrorResponse | None:
    """The error for a body that is announced with ``size`` bytes, if it is certainly too large.
    ``model``: in the address, otherwise empty."""
    if size is None:
        return None
    if table.limited_models and size > 0:
        of_endpoint: BodyLimit | None = None
        if model:
            of_endpoint = limit_of_route(_visible_route(model, key, table))
        elif key is not None and key.limits_models:
            of_endpoint = limit_of_any([table.model(name) for name in key.models])
        if of_endpoint is not None and of_endpoint.size < limit.size:
            limit = of_endpoint

    return error_response.body_too_large(limit) if size > limit.size else None


def _visible_route(model: str, key: KeyGrant | None, table: IndexedTable) -> ModelRoute | None:
    """A model's route, if the key may use it: errors reveal nothing about other models."""
    route = table.model(model)
    return route if route is not None and may_ask(RequestCaller(key), route) else None


def limit_by_beginning(
    head: BodyRequired, begin: Callable[[], bytes], table: IndexedTable, names: ModelNames
) -> BodyLimit | None:
    """The limit of the endpoint that the first bytes of a body name; None if they name none, or if
    it is not smaller than the limit from the head."""
    if not table.limited_models or head.upgrades or head.response_id:
        return None

    name = head.model
    if not name and not head.coding:
        name = model_in_beginning(begin(), head.content_type)

    route = names.route(name, table) if name else None
    if route is None or not may_ask(RequestCaller(head.key, head.project, names), route):
        return None

    limit = limit_of_route(route)
    return limit if limit is not None and limit.size < head.limit.size else None


def _admit_realtime(
    path: str,
    key: KeyGrant | None,
    project: str,
    method: str,
    *,
    headers: Mapping[str, str],
    query: str,
) -> ErrorResponse | BodyRequired:
    if headers.get("Upgrade", "").lower() != "websocket":
        return error_response.needs_websocket(path)

    names = parse_qs(query).get("model", [])
    if len(names) != 1:
        return error_response.no_model_in_query(path, len(names))

    return BodyRequired(path, key, project, method=method, upgrades=True, model=names[0])


def large_body(head: BodyRequired, body: bytes) -> LargeReader | None:
    """A reader for a large body; None if the body can be read at once or is not read at all."""
    if len(body) <= WHOLE_BYTES and body.count(b"\\u00") <= WHOLE_ESCAPES:
        return None
    if head.upgrades or head.response_id:
        return None
    is_in_form = is_form(head.path, head.content_type)
    return LargeForm(body, head.content_type) if is_in_form else LargeBody(body)


def admit_body(
    head: BodyRequired,
    body: bytes,
    table: IndexedTable,
    large: LargeReader | None = None,
    *,
    names: ModelNames = NO_NAMES,
) -> ErrorResponse | Forward:
    """Find the model named in ``body``, if the caller may use it. The body is neither changed nor
    kept. ``large``: the reader that has already read the body."""
    if head.upgrades:
        names = NO_NAMES  # its messages may name the model, too

    document = _read(head, body, large)
    more: bytes | None = None
    if document is None:
        document = read_json(body, names_another=head.path == RESPONSES)
    elif large is None and not head.content_type and not head.upgrades:
        more = body

    if isinstance(document, ErrorResponse):
        return document

    given = document.get("model")
    name = head.model or given
    is_default = name is None and names.default != ""
    if is_default:
        name = names.default
    if not isinstance(name, str) or not name:
        return error_response.invalid_model(json_type(name) if "model" in document else None)

    permit = head.permits.get(name)
    if permit is None or permit.version is not table.version:
        found = _permit(head, name, table, names, is_default=is_default)
        if isinstance(found, ErrorResponse):
            return found

        permit = found

    if 0 < permit.max_body_bytes < len(body):
        limit = limit_of_route(permit.route)
        assert limit is not None
        return error_response.body_too_large(limit, close=False)

    span = None if large is None else large.model_span
    forward = Forward(permit, head.path, document, body=more, model_span=span)
    if permit.name != given:
        changed = _renamed(head, body, document, forward)
        if changed is None:
            return error_response.model_not_settable()

        forward.rename(changed)

    return forward


def _read(
    head: BodyRequired, body: bytes, large: LargeReader | None
) -> ErrorResponse | Mapping[str, object] | None:
    """The members of a request's body that are read from all requests. None: ``json`` decides."""
    if head.upgrades:
        return {"model": head.model}
    if large is not None:
        return large.document(names_another=head.path == RESPONSES)
    if is_form(head.path, head.content_type):
        return read_form(body, head.content_type)
    return some_members(body) if IS_COMPILED and head.path != RESPONSES else None


def _renamed(
    head: BodyRequired, body: bytes, document: Mapping[str, object], forward: Forward
) -> Renamed | None:
    """The body with the name of the model in place of an alias or of none."""
    kind = head.content_type
    if "model" not in document:
        return with_model_added(body, kind, forward.model)
    return renamed(body, kind, forward.model, forward.model_span)


def _permit(
    head: BodyRequired, name: str, table: IndexedTable, names: ModelNames, *, is_default: bool
) -> ErrorResponse | Permit:
    caller = RequestCaller(head.key, head.project, names)
    route = names.route(name, table)
    if route is None or not may_ask(caller, route):
        known = _visible(table, caller)
        return (
            error_response.no_default_model(known)
            if is_default
            else _not_found(name, table, caller)
        )
    if error := missing_in_engine(head, route):
        return error
    if len(head.permits) >= MOST_PERMITS:
        head.permits.clear()

    permit = head.permits[name] = Permit(route, table.version)
    return permit


def missing_in_engine(head: BodyRequired, route: ModelRoute) -> ErrorResponse | None:
    """The error if the model's engine is known to lack the API, otherwise None."""
    engine = route.targets[0].engine if route.targets else ""
    is_listed = bool(route.apis) and head.method == "POST" and not head.response_id
    if is_listed or not methods_of(head.path):
        is_in_list = head.path in route.apis
        named = f"POST {head.path}"
        return None if is_in_list else error_response.not_in_engine(named, route.name, engine)

    if engine not in ENGINES or engine in engines_of(head.method, head.path):
        return None
    path = head.path.replace(head.response_id, "ID") if head.response_id else head.path
    return error_response.not_in_engine(f"{head.method} {path}", route.name, engine)


def admit_stored(
    head: BodyRequired, home: Home | None, table: IndexedTable
) -> ErrorResponse | Forward:
    """Admit a request for a stored response. ``home``: its replica; None if the caller has no
    response with this id."""
    route = table.model(home.model) if home is not None else None
    if home is None or route is None or not may_ask(RequestCaller(head.key, head.project), route):
        return error_response.unknown_response(head.response_id)
    if not _has(route, home):
        return error_response.response_gone(head.response_id)

    return missing_in_engine(head, route) or Forward(Permit(route), head.path, {}, home)


def previous_response(forward: Forward) -> str | ErrorResponse | None:
    """The id of the stored response that a new response continues."""
    if forward.path != RESPONSES or (found := forward.document.get("previous_response_id")) is None:
        return None
    return found if isinstance(found, str) else error_response.unknown_previous(str(found))


def follow(forward: Forward, response_id: str, home: Home | None) -> ErrorResponse | Forward:
    """Admit a request that continues the stored response in ``home``, which is None if the caller
    has no response with this id."""
    if home is None:
        return error_response.unknown_previous(response_id)
    if _has(forward.route, home):
        return forward.at(home)
    if home.model != forward.model:
        return error_response.previous_of_other_model(response_id, home.model)
    return error_response.previous_gone(response_id)


def _has(route: ModelRoute, home: Home) -> bool:
    return any(target.kernel_id == home.kernel_id for target in route.targets)


def check_model(name: str, table: IndexedTable) -> ErrorResponse | None:
    """The error for a model without a ready replica, which a newer table may resolve; None if a
    replica is ready."""
    route = table.model(name)
    if route is None:
        return error_response.unknown_model(name, table.names())
    is_ready = any(not target.draining for target in route.targets)
    return None if is_ready else error_response.model_loading(name, route.expected_s)


@dataclass(slots=True)
class RequestCaller:
    """The caller, the project in the address, which is empty for the common address, and the names
    of models that count."""

    key: KeyGrant | None
    project: str = ""
    names: ModelNames = NO_NAMES


def may_ask(caller: RequestCaller, route: ModelRoute) -> bool:
    """Whether a caller can see a model and send requests to it. A caller without a key means that
    none is required."""
    key = caller.key
    if key is not None and key.limits_models and not {route.name, route.endpoint} & set(key.models):
        return False

    if key is None or key.admin:
        project = caller.project
        if not project:
            return True
    else:
        project = key.project

    return (
        route.project in ("", project) or "*" in route.shared_with or project in route.shared_with
    )


def may_go_on(head: BodyRequired, model: str, table: IndexedTable) -> bool:
    """Whether an admitted request may continue. ``model``: its model; empty if unknown."""
    key = head.key
    project = head.project
    if project and key is not None and not key.admin and key.project != project:
        return False
    route = table.model(model) if model else None
    return route is None or may_ask(RequestCaller(key, project), route)


def _visible(table: IndexedTable, caller: RequestCaller) -> Iterator[str]:
    names = caller.names
    return (
        name
        for name in names.all(table)
        if (route := names.route(name, table)) and may_ask(caller, route)
    )


def _not_found(name: str, table: IndexedTable, caller: RequestCaller) -> ErrorResponse:
    known = _visible(table, caller)
    if name in caller.names.aliases and table.model(name) is None:
        return error_response.dead_alias(name, known)
    return error_response.unknown_model(name, known)


def _find_key(
    headers: Mapping[str, str], table: IndexedTable, unix_now: float
) -> KeyGrant | ErrorResponse:
    """The key in Authorization, in X-Api-Key (Anthropic's clients), in Api-Key (Azure's), or among
    a WebSocket's protocols (OpenAI's clients in a browser)."""
    secret = (
        bearer_key(headers)
        or headers.get("X-Api-Key", "").strip()
        or headers.get("Api-Key", "").strip()
        or key_in_protocols(headers.get("Sec-WebSocket-Protocol", ""))
    )
    if not secret:
        return error_response.invalid_key(
            given=False, authorization=headers.get("Authorization", "")
        )

    # Look up by digest, because the timing then reveals nothing about an almost correct secret.
    digest = hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
    return table.find_key(digest, unix_now) or error_response.invalid_key(given=True)


def _models(
    path: str, query: str, table: IndexedTable, caller: RequestCaller, *, shape: ModelFormat
) -> LocalResponse | ErrorResponse:
    names = caller.names
    if path == MODELS:
        routes = ((name, names.route(name, table)) for name in sorted(names.all(table)))
        found = ((name, route) for name, route in routes if route and may_ask(caller, route))
        return LocalResponse(list_models(found, query, shape))

    name = path[len(MODELS) + 1 :]
    route = names.route(name, table)
    if route is None or not may_ask(caller, route):
        return _not_found(name, table, caller)

    return LocalResponse(show_model(name, route, shape))
