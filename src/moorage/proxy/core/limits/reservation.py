"""Request limiter: reserves the limits of each request, assigns its priority, and counts its usage.
Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from moorage.common.link.messages import KeyGrant, RequestLimits
from moorage.proxy.core.activity import Activity
from moorage.proxy.core.content_coding import is_plain
from moorage.proxy.core.error_response import ErrorResponse
from moorage.proxy.core.headers import is_event_stream
from moorage.proxy.core.limit_subject import LimitSubject
from moorage.proxy.core.limits.ledger import Ledger, LedgerReservation
from moorage.proxy.core.limits.limiter import Ask, Observer
from moorage.proxy.core.limits.request_needs import (
    LimitExceeded,
    budget_exhausted,
    budget_reserved,
    budget_warning,
    estimate_tokens,
    headers_of,
    model_suspended,
    rate_limited,
    subjects_of,
)
from moorage.proxy.core.priority import DEFAULT, PRIORITIZED_PATHS, priority_of
from moorage.proxy.core.token_meter import PackedMeter, SessionMeter, TokenMeter, Tokens
from moorage.proxy.core.usage_book import NO_TOKENS, UsageBook

CLIENT_LEFT: Final = 499
# Paths whose answers contain generated tokens; all other paths only read tokens.
_GENERATING = (
    "/chat/completions",
    "/completions",
    "/responses",
    "/messages",
    "/batch",
    "/completion",
    "/infill",
    "/cohere/v2/chat",
    "/inference/v1/generate",
)
_BOUNDS = ("max_completion_tokens", "max_tokens", "max_output_tokens")


class RequestLimiter:
    """A ``Limiter`` that uses a ledger. ``limits_of``: returns a project's limits. ``usage``: None
    if nothing is metered. ``monotonic``: the clock. ``unix_now``: the wall clock, which decides
    when budgets have room again; without it, they never do.

    ``active``: requested subjects with limits. ``unmet``: those whose share was too small. Both
    cover the time since they were last emptied. A request that needs no limit, no metering and no
    priority costs a few comparisons.
    """

    def __init__(
        self,
        ledger: Ledger,
        limits_of: Callable[[str], RequestLimits | None],
        usage: UsageBook | None,
        monotonic: Callable[[], float],
        *,
        unix_now: Callable[[], float] = float,
    ) -> None:
        self._unix_now = unix_now
        self._ledger = ledger
        self._limits_of = limits_of
        self._usage = usage
        self._monotonic = monotonic
        self.activity = Activity()
        self.active: dict[str, LimitSubject] = {}
        self.unmet: set[str] = set()

    def reserve(self, ask: Ask, now: float) -> RunningReservation | ErrorResponse | None:
        key = ask.identity
        permit = ask.permit
        if key is not None and key.exhausted_until and key.exhausted_until > self._unix_now():
            return budget_exhausted(key.exhausted_until)

        until = permit.route.suspended_until
        if until and until > self._unix_now():
            return model_suspended(permit.name, until)

        self.activity.touch(permit.endpoint, now, requests=1)
        subjects = permit.subjects
        if subjects is None:
            project = self._limits_of(key.project) if key is not None else None
            subjects = subjects_of(key, permit.route, project)
            permit.limit_by(subjects)

        priority = priority_of(key)
        prioritizes = (
            priority != DEFAULT or "priority" in ask.members
        ) and ask.path in PRIORITIZED_PATHS
        warned = key is not None and key.warned_until > self._unix_now()
        if not (subjects or self._usage or warned or prioritizes) and priority == DEFAULT:
            return None

        held = RunningReservation(self, ask, priority, now=now, prioritizes=prioritizes)
        if subjects:
            answer = max_tokens(ask.members) if ask.path.endswith(_GENERATING) else 0
            tokens = estimate_tokens(ask.prompt_bytes, answer, _positive(ask.members, "n") or 1)
            outcome = self._ledger.reserve(subjects, tokens, now, held.prompt)
            for subject in subjects:
                self.active[subject.name] = subject

            if isinstance(outcome, LimitExceeded):
                if outcome.retry_s is not None:
                    self.unmet.add(outcome.subject)

                return (
                    budget_reserved(outcome.retry_s) if outcome.is_budget else rate_limited(outcome)
                )

            held.hold(outcome)

        if key is not None and warned:
            held.add_header(budget_warning(key.warned_until))

        return held

    def begin_answer(self, model: str, began_at: float, *, is_stream: bool) -> None:
        """Record that a replica answered the request that started at this time."""
        now = self._monotonic()
        self.activity.touch(model, now).add_first_token(now, now - began_at, is_stream=is_stream)

    def settle(
        self,
        reservation: LedgerReservation | None,
        key: KeyGrant | None,
        model: str,
        session_id: str,
        *,
        tokens: Tokens,
        now: float,
    ) -> None:
        """Settle an ended request with the tokens it used."""
        self.activity.touch(model, now).add_tokens(tokens)
        if reservation is not None:
            self._ledger.settle(reservation, tokens.total, now, tokens.prompt)
        if self._usage is not None:
            self._usage.add(key, model, session_id, tokens)

    def cancel(self, reservation: LedgerReservation | None, model: str, now: float) -> None:
        """Cancel a request that no replica has seen."""
        self.activity.touch(model, now)
        if reservation is not None:
            self._ledger.cancel(reservation, now)

    def counts_tokens(self, reservation: LedgerReservation | None) -> bool:
        if self._usage is not None:
            return True
        grants = () if reservation is None else reservation.grants
        return any(grant.limits.tokens_per_minute is not None for grant in grants)


class RunningReservation:
    """What a running request holds: the request flow's ``LedgerReservation``."""

    __slots__ = (
        "_began_at",
        "_generates",
        "_is_answered",
        "_key",
        "_limiter",
        "_meter",
        "_model",
        "_reservation",
        "headers",
        "prioritizes",
        "priority",
        "prompt",
        "repeats",
    )

    def __init__(
        self,
        limiter: RequestLimiter,
        ask: Ask,
        priority: int,
        *,
        now: float,
        prioritizes: bool,
    ) -> None:
        self._limiter = limiter
        self._key = ask.identity
        self._model = ask.permit.endpoint
        self._generates = ask.path.endswith(_GENERATING)
        self._began_at = now
        self.priority = priority
        self.prioritizes = prioritizes
        self.headers: Sequence[tuple[str, str]] = ()
        self.prompt = estimate_tokens(ask.prompt_bytes, 0)  # tokens of the prompt, estimated
        self.repeats = ask.repeats  # the answer repeats tokens that have already been counted
        self._reservation: LedgerReservation | None = None
        self._meter: TokenMeter | PackedMeter | SessionMeter | None = None
        self._is_answered = False

    def hold(self, reservation: LedgerReservation) -> None:
        self._reservation = reservation
        self.headers = headers_of(reservation.rooms)

    def add_header(self, header: tuple[str, str]) -> None:
        self.headers = (*self.headers, header)

    def observe(self, status: int, content_type: str, coding: str = "") -> Observer | None:
        self._is_answered = True
        if status >= 400:
            return None

        is_stream = is_event_stream(content_type)
        self._limiter.begin_answer(self._model, self._began_at, is_stream=is_stream)
        if self.repeats or not self._limiter.counts_tokens(self._reservation):
            return None

        if status == 101:
            self._meter = SessionMeter()
        elif is_plain(coding):
            self._meter = TokenMeter(is_stream=is_stream, generates=self._generates)
        else:
            self._meter = PackedMeter(coding, is_stream=is_stream)

        return self._meter.feed

    def settle(self, status: int, now: float, session_id: str = "") -> None:
        """Settle the request. A request that no replica answered is not counted, unless its client
        disconnected, because a replica has read the prompt in that case."""
        reservation = self._reservation
        self._reservation = None
        if not self._is_answered and status != CLIENT_LEFT:
            self._limiter.cancel(reservation, self._model, now)
            return

        tokens = NO_TOKENS
        if self._meter is not None:
            tokens = self._meter.estimate(self.prompt)
        elif not self._is_answered:
            tokens = Tokens(self.prompt)

        self._limiter.settle(
            reservation, self._key, model=self._model, session_id=session_id, tokens=tokens, now=now
        )


def max_tokens(document: Mapping[str, object]) -> int | None:
    """The request's limit on the length of its answer."""
    return next(
        (bound for name in _BOUNDS if (bound := _positive(document, name)) is not None), None
    )


def _positive(document: Mapping[str, object], name: str) -> int | None:
    value = document.get(name)
    return min(value, 1 << 40) if isinstance(value, int) and value > 0 else None
