"""Spans: the W3C Trace Context, samplers, and session traces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.traces import SESSION, Kept

from moorage.common.aio.clock import SystemClock
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.telemetry.spans import (
    Sampler,
    SpanContext,
    is_sampled,
    kernel_context,
    own_trace,
    parse_traceparent,
    sampled_by_ratio,
    session_context,
)

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
ids = st.integers(1, 2**128 - 1)


@given(ids, st.integers(1, 2**64 - 1), st.booleans())
def test_a_context_survives_its_header(trace_id: int, span_id: int, sampled: bool) -> None:
    context = SpanContext(trace_id, span_id, sampled)
    assert parse_traceparent(context.traceparent) == context


@pytest.mark.parametrize(
    ("value", "valid"),
    [
        (f"00-{TRACE}-{PARENT}-01", True),
        (f" 00-{TRACE}-{PARENT}-01 ", True),
        (f"00-{TRACE}-{PARENT}-03", True),  # flags from a later level
        (f"cc-{TRACE}-{PARENT}-01-more", True),  # from a later version
        (f"00-{TRACE}-{PARENT}-01-more", False),
        (f"ff-{TRACE}-{PARENT}-01", False),
        (f"00-{TRACE.upper()}-{PARENT}-01", False),
        (f"00-{'0' * 32}-{PARENT}-01", False),
        (f"00-{TRACE}-{'0' * 16}-01", False),
        (f"00-{TRACE}-{PARENT}", False),
        (f"00-{TRACE}-{PARENT}-01, 00-{TRACE}-{PARENT}-01", False),
        ("", False),
        (None, False),
    ],
)
def test_invalid_headers_are_none(value: str | None, valid: bool) -> None:
    parsed = parse_traceparent(value)
    assert (parsed is not None) == valid
    assert parsed is None or (f"{parsed.trace_id:032x}", parsed.is_sampled) == (TRACE, True)


@pytest.mark.parametrize(
    ("sampler", "root", "below_sampled", "below_unsampled"),
    [
        ("always_on", True, True, True),
        ("always_off", False, False, False),
        ("traceidratio", False, False, False),
        ("parentbased_always_on", True, True, False),
        ("parentbased_always_off", False, True, False),
        ("parentbased_traceidratio", False, True, False),
    ],
)
def test_samplers(sampler: Sampler, root: bool, below_sampled: bool, below_unsampled: bool) -> None:
    yes = SpanContext(1, 1, True)
    no = SpanContext(1, 1, False)
    found = [is_sampled(sampler, 0.5, 1, parent) for parent in (None, yes, no)]
    assert found == [root, below_sampled, below_unsampled]


@given(ids, st.floats(0, 1), st.floats(0, 1))
def test_a_larger_ratio_records_all_that_a_smaller_one_does(
    trace_id: int, one: float, other: float
) -> None:
    smaller, larger = sorted((one, other))
    assert sampled_by_ratio(trace_id, larger) or not sampled_by_ratio(trace_id, smaller)
    assert sampled_by_ratio(trace_id, 1)
    assert not sampled_by_ratio(trace_id, 0)


def test_a_ratio_counts_for_the_ids_of_sessions() -> None:
    clock = SystemClock()
    ids = [own_trace(SessionId(clock.new_id()), Kept()).trace_id for _ in range(2000)]
    assert 100 < sum(sampled_by_ratio(one, 0.1) for one in ids) < 320


def test_a_session_that_no_request_created_is_found_by_its_id() -> None:
    stored = own_trace(SessionId(SESSION), Kept())
    context, parent_id = session_context(SessionId(SESSION), stored)
    assert (context.trace, context, parent_id) == (SESSION.replace("-", ""), stored, 0)
    kernel = kernel_context(KernelId(SESSION[:-1] + "3"), context)
    assert (kernel.trace_id, kernel.span_id == context.span_id) == (context.trace_id, False)
    assert kernel.is_sampled
    assert not own_trace(SessionId(SESSION), Kept("always_off")).is_sampled


@pytest.mark.parametrize("sampled", [True, False])
def test_a_session_belongs_to_the_trace_of_its_request(sampled: bool) -> None:
    request = SpanContext(5, 7, sampled)
    context, parent_id = session_context(SessionId(SESSION), request)
    assert (context.trace_id, context.is_sampled, parent_id) == (5, sampled, 7)
    assert (
        context.span_id
        == session_context(SessionId(SESSION), own_trace(SessionId(SESSION), Kept()))[0].span_id
    )
