"""Variants of the planes that the gate runs: ``asyncio`` with every test, and the other variants
with the tests that reach their own code. All others are marked ``slow``; ``make full`` runs them.

The code that only ``simple`` has: aiohttp's client to replicas, aiohttp's server for requests to
models, and its own tasks and time limits. Apps and WebSockets are served by its code in every
variant, since the asyncio plane hands their connections over. The part that only the dialed
variants have: the connection to a replica is a stream with a window, and its end and its reset are
frames. Each is paired with one plane, except where the plane is also involved in closing a
connection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet

FULL = "asyncio"
SIMPLE = "simple"
DIALED = "asyncio-dialed"
SIMPLE_DIALED = "simple-dialed"
OTHERS = (SIMPLE, DIALED, SIMPLE_DIALED)


@dataclass(frozen=True)
class Seam:
    """``tests``: the module's tests; () means all of them."""

    variants: tuple[str, ...]
    why: str
    tests: tuple[str, ...] = ()


# By module. A module that is not listed runs only with ``FULL``.
SEAMS: dict[str, tuple[Seam, ...]] = {
    "test_back_pressure": (
        Seam(
            OTHERS,
            "who makes a sender wait: a transport, aiohttp's buffers, the window of a stream",
        ),
    ),
    "test_churn": (Seam(OTHERS, "what may be left of a connection differs in each"),),
    "test_drain": (Seam(OTHERS, "each ends its connections itself, and a stream ends by a frame"),),
    "test_stale_connections": (Seam(OTHERS, "whose end is noticed how, and by which pool"),),
    "test_cancellation": (
        Seam(
            (SIMPLE, DIALED),
            "a task is cancelled in place of a connection aborted; a reset becomes a frame",
        ),
    ),
    "test_dying_replicas": (
        Seam((SIMPLE, DIALED), "errors of aiohttp's client; an end and a reset that are frames"),
        Seam(
            (SIMPLE_DIALED,),
            "an error at connect that the agent reports",
            ("test_dead_before_connect",),
        ),
    ),
    "test_bad_replicas": (
        Seam((SIMPLE,), "aiohttp parses responses, limits their heads and times silence"),
        Seam(
            (DIALED,),
            "a body that waits in a stream's window, and a stream that ends in it",
            (
                "test_never_reads",
                "test_answers_before_the_body_ends",
                "test_stalls_within_a_stream",
            ),
        ),
    ),
    "test_hostile_responses": (
        Seam(
            (SIMPLE,),
            "aiohttp parses responses; apps meet it in every variant",
            ("test_hostile_replica",),
        ),
    ),
    "test_loop_stalls": (Seam((SIMPLE,), "aiohttp parses both sides, and reads bodies in tasks"),),
    "test_fallbacks": (
        Seam((SIMPLE,), "its own sessions with the addresses and the TLS of providers"),
    ),
    "test_body_limits": (Seam((SIMPLE,), "each plane counts and reads bodies itself"),),
    "test_compressed_bodies": (Seam((SIMPLE,), "each plane expands bodies in its own turns"),),
    "test_fuzz": (Seam((SIMPLE,), "aiohttp's parsers on both sides"),),
    "test_limits": (Seam((SIMPLE,), "aiohttp's limits, and its own reading of bodies"),),
    "test_request_framing": (
        Seam((SIMPLE,), "aiohttp frames what the replica gets"),
        Seam(
            (DIALED, SIMPLE_DIALED),
            "larger than a stream's window",
            ("test_large_bodies_arrive_whole",),
        ),
    ),
    "test_response_framing": (
        Seam((SIMPLE,), "aiohttp frames what the client gets"),
        Seam(
            (DIALED,),
            "an end of the connection, or of a window, within or behind a body",
            (
                "test_body_ends_with_the_connection",
                "test_cut_off_response_to_http_1_0_does_not_look_complete",
                "test_http_1_0_stream_ends_with_the_connection",
                "test_large_responses_arrive_whole",
            ),
        ),
    ),
    "test_bodies": (
        Seam(
            (SIMPLE,), "a large body is sent in pieces there", ("test_model_behind_four_megabytes",)
        ),
    ),
    "test_revoked_keys": (Seam((SIMPLE,), "requests end by the time limit of their task"),),
    "test_cors": (Seam((SIMPLE,), "each plane adds the headers itself"),),
    "test_native_paths": (Seam((SIMPLE,), "each plane builds the address at the replica itself"),),
    "test_traces": (Seam((SIMPLE,), "each plane adds the headers itself"),),
    "test_trusted_proxies": (Seam((SIMPLE,), "each plane finds out who its peer is"),),
    "test_slow_transfers": (
        Seam((SIMPLE_DIALED,), "a stream's window, and a connection that is not handed over"),
    ),
    "test_log_lines": (Seam((SIMPLE,), "each plane sets the subject itself"),),
    "test_realtime": (
        Seam((SIMPLE_DIALED,), "the upgrade of a stream, and no connection handed over"),
    ),
    "test_websockets": (
        Seam(
            (SIMPLE_DIALED,),
            "the upgrade of a stream, its window and its end, and no connection handed over",
            (
                "test_client_that_leaves_ends_the_apps_connection",
                "test_dead_app_ends_the_clients_connection",
                "test_drain_waits_for_websockets_and_then_cuts_them",
                "test_frames_before_the_upgrade_is_accepted",
                "test_frames_in_the_segment_of_the_handshake",
                "test_large_messages_pass_both_ways_at_once",
                "test_refused_handshakes_are_ordinary_responses",
                "test_slow_reader_stops_the_writer",
            ),
        ),
    ),
}
# Modules that run only with ``FULL``, and why no other variant could fail alone.
ALONE = {
    "test_health": "the flow answers, and each plane sends its other answers in the same way",
    "test_like_heads": "only the asyncio plane remembers heads",
    "test_hostile_requests": "the client's side of simple is common/http/server, which "
    "tests/store/api/test_api_hostile.py holds to the same table; no replica sees these requests",
}


def gate_variants(module: str, test: str) -> set[str]:
    """The variants with which the gate runs a test from a module of this package."""
    seams = SEAMS.get(module, ())
    return {
        FULL,
        *(each for seam in seams if not seam.tests or test in seam.tests for each in seam.variants),
    }


def parameters(module: str, test: str) -> list[ParameterSet]:
    """The parameters of a test that takes a plane: all variants, some of which are marked."""
    chosen = gate_variants(module, test)
    return [
        pytest.param(variant, marks=() if variant in chosen else pytest.mark.slow)
        for variant in sorted((FULL, *OTHERS))
    ]
