"""The request limiter: what it reserves for a request, and how the reservation is settled at the
end."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from moorage.common.link.messages import BudgetGrant, KeyGrant, ModelRoute, RequestLimits, Target
from moorage.common.model.ids import KernelId, SessionId
from moorage.proxy.core.error_response import ErrorResponse
from moorage.proxy.core.limits.ledger import Ledger, cells_needed
from moorage.proxy.core.limits.limiter import Ask
from moorage.proxy.core.limits.reservation import RequestLimiter, RunningReservation
from moorage.proxy.core.metrics import ProxyMetrics
from moorage.proxy.core.permit import Permit
from moorage.proxy.core.priority import DEFAULT
from moorage.proxy.core.usage_book import Amounts, Payer, UsageBook

CHAT = "/v1/chat/completions"
JSON = "application/json"
USAGE = b'{"usage": {"prompt_tokens": 3, "completion_tokens": 4}}'
KEY = KeyGrant("x", user="", project="p", id="k", owner="ada")


def vllm() -> Target:
    return Target(
        SessionId("s"),
        KernelId("k"),
        host="h",
        port=1,
        key="",
        engine="vllm",
        accepts_priority=True,
    )


def ask(
    key: KeyGrant | None = KEY,
    *targets: Target,
    limits: RequestLimits | None = None,
    **fields: object,
) -> Ask:
    document = {"model": "m"} | fields
    route = ModelRoute("m", 0, targets, limits=limits)
    return Ask(
        key, Permit(route), CHAT, len(json.dumps(document)), members=document, request_id="r"
    )


def limiter(usage: UsageBook | None = None, project: RequestLimits | None = None) -> RequestLimiter:
    return RequestLimiter(
        Ledger([0] * cells_needed(1)),
        {"p": project}.get,
        usage,
        lambda: 0.5,
        unix_now=lambda: 1_000.0,
    )


def held(outcome: RunningReservation | ErrorResponse | None) -> RunningReservation:
    assert isinstance(outcome, RunningReservation), outcome
    return outcome


def test_request_without_limits_holds_nothing():
    assert limiter().reserve(ask(), 0.0) is None
    assert limiter().reserve(ask(None), 0.0) is None


def test_exhausted_budget_refuses_until_it_has_room_again():
    refusal = limiter().reserve(ask(replace(KEY, exhausted_until=1_800_000_000)), 0.0)
    assert isinstance(refusal, ErrorResponse)
    assert (refusal.status, refusal.type, refusal.code) == (
        429,
        "insufficient_quota",
        "budget_exhausted",
    )
    assert refusal.headers == {"Retry-After": "Fri, 15 Jan 2027 08:00:00 GMT"}
    assert refusal.message.endswith("is exhausted until 2027-01-15T08:00:00Z.")

    # The proxy may have no contact with a manager when the period ends.
    assert limiter().reserve(ask(replace(KEY, exhausted_until=1_000)), 0.0) is None


def test_what_is_left_of_a_budget_is_reserved():
    limits = limiter(UsageBook())
    key = replace(KEY, budgets=(BudgetGrant("budget/b", "tokens", 100),))
    first = held(limits.reserve(ask(key, max_tokens=200), 0.0))
    assert first.headers == [], "no rate"
    refusal = limits.reserve(ask(key, max_tokens=1), 0.0)
    assert isinstance(refusal, ErrorResponse)
    assert (refusal.status, refusal.type, refusal.code) == (
        429,
        "insufficient_quota",
        "budget_exhausted",
    )
    assert refusal.headers == {"Retry-After": "5"}
    assert limits.unmet == {"budget/b"}, "a greater share is asked for at once"
    observer = first.observe(200, JSON)
    assert observer is not None
    observer(USAGE)
    first.settle(200, 1.0)
    held(limits.reserve(ask(key, max_tokens=1), 1.0))


def test_model_whose_payer_has_used_up_a_budget_is_refused_to_everyone():
    for key in (KEY, None):
        asked = ask(key)
        asked.permit.route = replace(asked.permit.route, suspended_until=1_800_000_000)
        refusal = limiter().reserve(asked, 0.0)
        assert isinstance(refusal, ErrorResponse)
        assert (refusal.status, refusal.code) == (429, "budget_exhausted")
        assert refusal.headers == {"Retry-After": "Fri, 15 Jan 2027 08:00:00 GMT"}
        assert "who serves the model 'm' is exhausted until 2027-01-15T08:00:00Z" in refusal.message
        asked.permit.route = replace(asked.permit.route, suspended_until=1_000)
        assert limiter().reserve(asked, 0.0) is None


def test_soft_limit_of_a_budget_is_a_header_until_it_begins_anew():
    outcome = held(limiter().reserve(ask(replace(KEY, warned_until=1_800_000_000)), 0.0))
    [(name, text)] = outcome.headers
    assert name == "x-moorage-budget-warning"
    assert text.endswith("its project is reached, until 2027-01-15T08:00:00Z")
    assert limiter().reserve(ask(replace(KEY, warned_until=1_000)), 0.0) is None
    limits = RequestLimits(requests_per_minute=5)
    both = held(
        limiter().reserve(ask(replace(KEY, warned_until=1_800_000_000), limits=limits), 0.0)
    )
    assert [name for name, _ in both.headers][-1:] == ["x-moorage-budget-warning"]
    assert len(both.headers) == 4


@pytest.mark.parametrize(
    ("began", "status", "body", "used"),
    [
        (True, 200, USAGE, 7),
        (True, 200, b"{}", 7),  # the prompt, by its size
        (True, 400, b"{}", 0),
        (False, 503, b"", 0),
        (False, 499, b"", 7),
    ],
)
def test_settled_tokens(began: bool, status: int, body: bytes, used: int):
    usage = UsageBook()
    limits = limiter(usage, RequestLimits(tokens_per_minute=1000, concurrent_requests=1))
    request = held(limits.reserve(ask(pad=""), 0.0))
    assert dict(request.headers)["x-ratelimit-remaining-tokens"] == str(1000 - 7 - 256)

    if began:
        observer = request.observe(status, JSON)
        assert (observer is None) == (status >= 400)
        if observer is not None:
            assert (observer(body), observer(b"")) == (body, b"")

    request.settle(status, 1.0, "s")
    following = held(limits.reserve(ask(pad=""), 1.0))
    assert dict(following.headers)["x-ratelimit-remaining-tokens"] == str(1000 - used - 7 - 256)
    counted = usage.take()
    assert bool(counted) == (began or status == 499)
    assert all(payer == Payer("p", "ada", "k", "m", "s") for payer in counted)


def test_refusal_and_headers():
    limits = limiter(project=RequestLimits(requests_per_minute=1))
    assert ("x-ratelimit-remaining-requests", "0") in held(limits.reserve(ask(), 0.0)).headers
    error = limits.reserve(ask(), 0.0)
    assert isinstance(error, ErrorResponse)
    assert error.status == 429
    assert limits.active.keys() == limits.unmet == {"project/p"}


def test_headers_are_of_the_tightest_limit():
    limits = limiter(project=RequestLimits(requests_per_minute=7, tokens_per_minute=9000))
    key = KeyGrant("x", project="p", id="k", limits=RequestLimits(requests_per_minute=5))
    request = ask(key, limits=RequestLimits(requests_per_minute=3, tokens_per_minute=2000))
    shown = dict(held(limits.reserve(request, 0.0)).headers)
    assert shown["x-ratelimit-limit-requests"] == "3"
    assert shown["x-ratelimit-remaining-requests"] == "2"
    assert shown["x-ratelimit-limit-tokens"] == "2000"
    assert limits.active.keys() == {"key/k", "project/p", "model/m"}


def test_limits_of_a_model_hold_without_keys():
    limits = limiter()
    of_model = RequestLimits(concurrent_requests=1)
    first = held(limits.reserve(ask(None, limits=of_model), 0.0))
    assert isinstance(limits.reserve(ask(None, limits=of_model), 0.0), ErrorResponse)
    first.settle(200, 0.0)
    held(limits.reserve(ask(None, limits=of_model), 0.0))


def test_answer_by_its_bound():
    limits = limiter(project=RequestLimits(tokens_per_minute=1000))
    for fields, tokens in (({"max_tokens": 30}, 30), ({"max_completion_tokens": 9, "n": 2}, 18)):
        request = ask(**fields)
        before = held(limits.reserve(request, 0.0))
        prompt = -(-request.prompt_bytes // 4)
        assert dict(before.headers)["x-ratelimit-remaining-tokens"] == str(1000 - prompt - tokens)
        before.observe(200, JSON)
        before.settle(502, 0.0)
        assert before.prompt == prompt
        limits = limiter(project=RequestLimits(tokens_per_minute=1000))


def test_priority_reaches_engines_that_read_it():
    important = KeyGrant("x", priority=40)
    for targets in ((vllm(),), ()):
        request = held(limiter().reserve(ask(important, *targets), 0.0))
        assert (request.priority, request.prioritizes) == (40, True)
        own = held(limiter().reserve(ask(None, *targets, priority=-99), 0.0))
        assert (own.priority, own.prioritizes) == (DEFAULT, True), "no client goes before its class"
        lowly = held(limiter().reserve(ask(KeyGrant("x", priority=3), *targets), 0.0))
        assert (lowly.priority, lowly.prioritizes) == (3, True)
        assert limiter().reserve(ask(None, *targets), 0.0) is None

    usual = held(limiter(UsageBook()).reserve(ask(None, vllm()), 0.0))
    assert not usual.prioritizes, "its body passes as it is"


def test_usage_is_summed():
    usage = UsageBook()
    limits = limiter(usage)
    for _ in range(2):
        request = held(limits.reserve(ask(), 0.0))
        observer = request.observe(200, JSON)
        assert observer is not None
        observer(USAGE)
        request.settle(200, 0.0)

    assert usage.take() == {Payer("p", "ada", "k", "m"): Amounts(2, 6, 8, 0)}
    assert usage.take() == {}


def test_activity():
    limits = limiter(UsageBook())
    requests = [held(limits.reserve(ask(), at)) for at in (0.0, 0.1, 0.2)]
    activity = limits.activity.models["m"]
    assert (activity.requests, activity.last, activity.first_token_ms(0.2)) == (3, 0.2, None)
    for request in requests[:2]:
        request.observe(200, JSON)

    assert activity.first_token_ms(1.0) == 500
    assert activity.first_token_ms(61.0) is None
    limits.activity.touched.clear()
    requests[0].settle(200, 7.0)
    assert (activity.last, limits.activity.touched) == (7.0, {"m"})


def test_metrics_have_tokens_and_the_first_tokens_of_streams():
    limits = limiter(UsageBook())
    metrics = ProxyMetrics()
    metrics.show_activity(limits.activity.models)

    for content_type in (JSON, "text/event-stream"):
        request = held(limits.reserve(ask(), 0.0))
        observer = request.observe(200, content_type)
        assert observer is not None
        observer(USAGE)
        request.settle(200, 1.0)
        metrics.record_request("m", 200, 1.0)

    shown = metrics.text().decode()
    for series in (
        'tokens_total{direction="in",model="m"} 6.0',
        'tokens_total{direction="out",model="m"} 8.0',
        'time_to_first_token_seconds_bucket{le="0.25",model="m"} 0.0',
        'time_to_first_token_seconds_bucket{le="0.5",model="m"} 1.0',
        'time_to_first_token_seconds_count{model="m"} 1.0',
    ):
        assert f"moorage_proxy_{series}" in shown


def test_a_generated_answer_without_a_report_counts_by_its_size():
    limits = limiter(usage := UsageBook())
    running = held(limits.reserve(ask(), 0.0))
    observer = running.observe(200, JSON)
    assert observer is not None
    observer(b"x" * 400)
    running.settle(200, 1.0)
    [amounts] = usage.take().values()
    assert amounts.tokens_out == 100
