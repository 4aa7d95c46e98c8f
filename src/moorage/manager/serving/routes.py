"""Route table for the proxies, built from the store's rows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import Any

from moorage.common.link.messages import AppRoute, ModelRoute, Target
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.status import EndpointStatus


def model_routes(rows: Iterable[Mapping[str, Any]]) -> tuple[ModelRoute, ...]:
    """One route per model name, ordered by name. For a name that several rows share, the lowest ``rank``
    wins: an endpoint before a session."""
    routes: dict[str, tuple[int, int, list[Target]]] = {}
    facts: dict[str, Mapping[str, Any]] = {}
    contexts: dict[str, list[int]] = {}
    for row in rows:
        rank, name = row["rank"], row["model"]
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
                    row["host"],
                    row["port"],
                    row["secret"],
                    row["engine"],
                    row["draining"],
                    accepts_priority=reads_priority(row["engine"], row["args"] or ()),
                )
            )
    return tuple(
        ModelRoute(
            name,
            created,
            tuple(sorted(targets, key=lambda t: t.kernel_id)),
            facts[name]["project"],
            tuple(facts[name]["shared_with"]),
            holds=facts[name]["holds"],
            status=_status(facts[name], sum(not target.draining for target in targets)),
            expected_s=ceil(facts[name]["expected_s"].total_seconds()) if facts[name]["expected_s"] else 0,
            max_model_len=min(contexts.get(name, (0,))),
        )
        for name, (_, created, targets) in sorted(routes.items())
    )


def _status(row: Mapping[str, Any], ready: int) -> EndpointStatus:
    """As far as routes say: requests that wait make no new route."""
    if ready:
        return EndpointStatus.READY if ready >= row["wanted"] else EndpointStatus.DEGRADED
    if row["wanted"] == 0:
        return EndpointStatus.NOT_LOADED
    return EndpointStatus.LOADING if row["is_starting"] else EndpointStatus.QUEUED


def reads_priority(engine: str, args: Sequence[str]) -> bool:
    """Whether the engine schedules by ``priority`` of a request. vLLM refuses the field unless it was started
    so; other engines have none."""
    words = [word.replace("_", "-") for arg in args for word in arg.split("=", 1)]
    option = "--scheduling-policy"
    return engine == "vllm" and option in words and words[words.index(option) + 1 :][:1] == ["priority"]


def app_routes(rows: Iterable[Mapping[str, Any]]) -> tuple[AppRoute, ...]:
    """One route per service port of a session, in the order of the rows."""
    routes: dict[tuple[str, str], AppRoute] = {}
    for row in rows:
        routes[str(row["session_id"]), row["name"]] = AppRoute(
            SessionId(str(row["session_id"])),
            row["name"],
            row["protocol"],
            row["base_path"],
            row["host"],
            row["port"],
            row["key"],
            row["user"],
            row["project"],
        )
    return tuple(routes.values())
