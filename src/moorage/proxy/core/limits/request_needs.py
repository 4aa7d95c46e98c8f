"""Needs of requests for models, which count against the limits of the key, project and model. Pure.

A request reserves its needs before it is sent, and its answer settles them. ``ledger`` keeps the
counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Final

from moorage.common.link.messages import KeyGrant, ModelRoute, RequestLimits
from moorage.proxy.core.error_response import ErrorResponse
from moorage.proxy.core.limit_subject import LimitSubject
from moorage.proxy.core.token_meter import BYTES_PER_TOKEN

WINDOW_S: Final = 60
# Tokens reserved for an answer without a limit.
UNBOUNDED_ANSWER: Final = 256
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"


class Room:
    """The unused rest of a limit. ``reset_s``: seconds until the limit is entirely unused again, if
    no request follows."""

    __slots__ = ("limit", "remaining", "reset_s")

    def __init__(self, limit: int, remaining: int, reset_s: int) -> None:
        self.limit = limit
        self.remaining = remaining
        self.reset_s = reset_s


class Rooms:
    """The unused rest of the tightest limit of each kind, or None."""

    __slots__ = ("requests", "tokens")

    def __init__(self, requests: Room | None, tokens: Room | None) -> None:
        self.requests = requests
        self.tokens = tokens


@dataclass(frozen=True, slots=True)
class LimitExceeded:
    """A request that exceeds a limit. ``retry_s``: when it may succeed; None if it is too large to
    ever succeed."""

    subject: str
    kind: str  # "requests", "tokens" or "concurrent requests"
    limit: int
    asked: int
    retry_s: int | None
    rooms: Rooms
    is_budget: bool = False


def subjects_of(
    key: KeyGrant | None, route: ModelRoute | None, project: RequestLimits | None
) -> tuple[LimitSubject, ...]:
    """The subjects that limit a request; most requests have none. ``project``: the limits of the
    key's project."""
    model = None if route is None else route.limits
    budgets = () if key is None else key.budgets
    if project is None and model is None and not budgets and (key is None or key.limits is None):
        return ()

    limited = (
        [] if key is None else [(f"key/{key.id}", key.limits), (f"project/{key.project}", project)]
    )
    if route is not None:
        limited.append((f"model/{route.endpoint}", model))

    subjects = [
        LimitSubject(name, limits) for name, limits in limited if limits is not None and limits
    ]
    subjects += [
        LimitSubject(budget.subject, RequestLimits(tokens_per_minute=budget.hard), budget.unit)
        for budget in budgets
    ]
    return tuple(subjects)


def estimate_tokens(body_bytes: int, max_tokens: int | None, choices: int = 1) -> int:
    """The tokens to reserve: the prompt's, estimated from its size, and the most that the answer
    can have."""
    answer = UNBOUNDED_ANSWER if max_tokens is None else max(0, max_tokens)
    return math.ceil(body_bytes / BYTES_PER_TOKEN) + answer * max(1, choices)


def headers_of(rooms: Rooms) -> list[tuple[str, str]]:
    """OpenAI's headers ``x-ratelimit-*``."""
    found: list[tuple[str, str]] = []
    for kind, room in (("requests", rooms.requests), ("tokens", rooms.tokens)):
        if room is not None:
            found.append((f"x-ratelimit-limit-{kind}", str(room.limit)))
            found.append((f"x-ratelimit-remaining-{kind}", str(room.remaining)))
            found.append((f"x-ratelimit-reset-{kind}", f"{room.reset_s}s"))
    return found


def tightest(rooms: Iterable[Room]) -> Room | None:
    return min(rooms, key=lambda room: room.remaining, default=None)


def budget_exhausted(until: int) -> ErrorResponse:
    """A 429 error in OpenAI's form. ``until``: unix seconds, also for Retry-After."""
    at = datetime.fromtimestamp(until, UTC)
    message = f"A budget of this key, its user or its project is exhausted until {at:{_TIME}}."
    headers = {"Retry-After": format_datetime(at, usegmt=True)}
    return ErrorResponse(429, "insufficient_quota", "budget_exhausted", message, headers=headers)


def budget_reserved(retry_s: int | None) -> ErrorResponse:
    """A 429 error because running or recently ended requests hold the rest of a budget."""
    message = (
        "Other requests have reserved the rest of a budget of this key, its user or its project. "
        f"Retry after {retry_s} s."
    )
    headers = {"Retry-After": str(retry_s)}
    return ErrorResponse(429, "insufficient_quota", "budget_exhausted", message, headers=headers)


def model_suspended(name: str, until: int) -> ErrorResponse:
    """A 429 error for every caller, because the model's payer has exhausted a budget. ``until``:
    unix seconds."""
    at = datetime.fromtimestamp(until, UTC)
    message = (
        f"A budget of the project or user who serves the model {name!r} is exhausted until "
        f"{at:{_TIME}}."
    )
    headers = {"Retry-After": format_datetime(at, usegmt=True)}
    return ErrorResponse(429, "insufficient_quota", "budget_exhausted", message, headers=headers)


def budget_warning(until: int) -> tuple[str, str]:
    """The header that warns of a soft limit. ``until``: unix seconds."""
    at = datetime.fromtimestamp(until, UTC)
    text = (
        "the soft limit of a budget of this key, its user or its project is reached, until "
        f"{at:{_TIME}}"
    )
    return "x-moorage-budget-warning", text


def rate_limited(refusal: LimitExceeded) -> ErrorResponse:
    """A 429 error like OpenAI's."""
    what, _, name = refusal.subject.partition("/")
    of = "this key" if what == "key" else f"{what} {name!r}"
    unit = (
        f"{refusal.kind} at a time"
        if refusal.kind.startswith("concurrent")
        else f"{refusal.kind} a minute"
    )
    message = f"Rate limit reached for {of}: {refusal.limit} {unit}."
    headers = dict(headers_of(refusal.rooms))
    if refusal.limit == 0:
        message += " It allows none."
    elif refusal.retry_s is None:
        message += (
            f" The request asks for {refusal.asked}: shorten the prompt, or set a lower max_tokens."
        )
    else:
        message += f" Retry after {refusal.retry_s} s."
        headers["Retry-After"] = str(refusal.retry_s)

    kind = "tokens" if refusal.kind == "tokens" else "requests"
    return ErrorResponse(
        429, "rate_limit_error", "rate_limit_exceeded", message, param=kind, headers=headers
    )
