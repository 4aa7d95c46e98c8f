"""Route table for the proxies, built from the store's rows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from math import ceil
from typing import Any

from yarl import URL

from moorage.common.link.messages import AppRoute, ModelRoute, RequestLimits, RouteFallback, Target
from moorage.common.model.adapters import adapter_model, adapters_in
from moorage.common.model.engine_features import lacked_by
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.newer_values import known_part
from moorage.common.model.serving import Routing
from moorage.common.model.session_access import SessionKind, kind_of
from moorage.common.model.status import EndpointStatus

_ROUNDED_S = 5
_NO_KEYS: Mapping[str, Mapping[str, str]] = {}


def to_model_routes(
    rows: Iterable[Mapping[str, Any]], keys: Mapping[str, Mapping[str, str]] = _NO_KEYS
) -> tuple[ModelRoute, ...]:
    """One route per model name, ordered by name. If several rows share a name, the lowest ``rank``
    wins: an endpoint before a session. ``keys``: by model, the keys of providers by the name of
    their secret."""
    routes: dict[str, tuple[int, int, list[Target]]] = {}
    facts: dict[str, Mapping[str, Any]] = {}
    contexts: dict[str, list[int]] = {}
    for row in rows:
        rank = row["rank"]
        name = row["model"]
        if name in routes and routes[name][0] < rank:
            continue

        facts.setdefault(name, row)
        _, _, targets = routes.setdefault(name, (rank, int(row["created_at"].timestamp()), []))
        if row["max_model_len"] is not None:
            contexts.setdefault(name, []).append(row["max_model_len"])

        if row["kernel_id"] is not None:
            targets.append(
                Target(
                    SessionId(row["session_id"]),
                    KernelId(row["kernel_id"]),
                    host=row["host"],
                    port=row["port"],
                    key=row["secret"],
                    engine=row["engine"],
                    draining=row["draining"],
                    accepts_priority=reads_priority(row["engine"], row["args"] or ()),
                    adapters=adapters_in(row["args"] or ()),
                    canary=row["is_canary"],
                    peer_id=row["peer_id"],
                    lacks=lacked_by(row["engine"], row["args"] or ()),
                )
            )

    return tuple(
        ModelRoute(
            name,
            created,
            targets=tuple(sorted(targets, key=lambda t: t.kernel_id)),
            project=facts[name]["project"],
            shared_with=tuple(facts[name]["shared_with"]),
            limits=_limits(facts[name]["limits"]),
            holds=facts[name]["holds"],
            status=_status(facts[name], sum(not target.draining for target in targets)),
            expected_s=ceil(facts[name]["expected_s"].total_seconds())
            if facts[name]["expected_s"]
            else 0,
            ready_at=_ready_at(facts[name]["ready_at"]),
            max_model_len=min(contexts.get(name, (0,))),
            adapters=tuple(
                adapter_model(name, adapter["name"]) for adapter in facts[name]["adapters"] or ()
            ),
            canary=facts[name]["canary"],
            suspended_until=_unix(facts[name]["suspended_until"]),
            **_routing(name, facts[name]["routing"], keys.get(name, {})),
        )
        for name, (_, created, targets) in sorted(routes.items())
    )


def _limits(stored: Mapping[str, Any] | None) -> RequestLimits | None:
    known = (
        {name: stored[name] for name in RequestLimits.__slots__ if name in stored} if stored else {}
    )
    return RequestLimits(**known) if known else None


def _unix(at: datetime | None) -> int:
    return 0 if at is None else int(at.timestamp())


def _ready_at(expected: datetime | None) -> int:
    """Round up, because a site reports the same start slightly differently each time."""
    return 0 if expected is None else ceil(expected.timestamp() / _ROUNDED_S) * _ROUNDED_S


def _routing(
    name: str, stored: Mapping[str, Any] | None, keys: Mapping[str, str]
) -> dict[str, Any]:
    """Fields of a route that determine how requests are routed. Providers with an unknown key are
    omitted."""
    if stored is None:
        return {}

    # Without a newer release's fields, requests are still served, though perhaps not optimally.
    routing, _ = known_part(Routing, stored, {})
    fallbacks = tuple(
        RouteFallback(
            fallback.model,
            _provider(name, number, fallback.url, keys[fallback.secret] if fallback.secret else ""),
        )
        for number, fallback in enumerate(routing.fallbacks)
        if fallback.secret is None or fallback.secret in keys
    )
    return {
        "fallbacks": fallbacks,
        "fallback_after_s": routing.fallback_after_s,
        "prefix_affinity": routing.affinity == "prefix",
        "max_load": routing.max_load,
        "apis": tuple(routing.apis),
        "max_body_bytes": routing.max_body_bytes or 0,
    }


def _provider(name: str, number: int, base: str | None, key: str) -> Target | None:
    if base is None:
        return None

    url = URL(base)
    identity = KernelId(f"provider-{number}/{name}")
    host = url.raw_host or ""
    port = url.port or 443
    prefix = url.raw_path.rstrip("/")

    return Target(
        SessionId(""),
        identity,
        host=host,
        port=port,
        key=key,
        engine="provider",
        tls=True,
        prefix=prefix,
    )


def _status(row: Mapping[str, Any], ready: int) -> EndpointStatus:
    """The part of the status that routes show: waiting requests do not change the route."""
    if row["suspended_until"] is not None:
        return EndpointStatus.NOT_LOADED
    if ready:
        return EndpointStatus.READY if ready >= row["wanted"] else EndpointStatus.DEGRADED
    if row["wanted"] == 0:
        return EndpointStatus.NOT_LOADED
    return EndpointStatus.LOADING if row["is_starting"] else EndpointStatus.QUEUED


def reads_priority(engine: str, args: Sequence[str]) -> bool:
    """Whether the engine schedules by a request's ``priority``. vLLM refuses the field unless it
    was started with this option; other engines do not have it."""
    words = [word.replace("_", "-") for arg in args for word in arg.split("=", 1)]
    option = "--scheduling-policy"
    return (
        engine == "vllm"
        and option in words
        and words[words.index(option) + 1 :][:1] == ["priority"]
    )


def to_app_routes(rows: Iterable[Mapping[str, Any]]) -> tuple[AppRoute, ...]:
    """One route per service port of a session, in the order of the rows."""
    routes: dict[tuple[str, str], AppRoute] = {}
    for row in rows:
        routes[str(row["session_id"]), row["name"]] = AppRoute(
            SessionId(str(row["session_id"])),
            row["name"],
            protocol=row["protocol"],
            base_path=row["base_path"],
            host=row["host"],
            port=row["port"],
            key=row["key"],
            user=row["user"],
            project=row["project"],
            idle_ends_at=row["idle_ends_at"],
            idle_criterion=row["idle_criterion"],
            unisolated=kind_of(row["runtime"], isolated=row["isolated"]) is SessionKind.AS_AGENT,
            peer_id=row["peer_id"],
        )

    return tuple(routes.values())
