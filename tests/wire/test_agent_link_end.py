"""The end of the agent's link to the manager."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from itertools import count
from typing import Any

import agent_harness as h
import grpc
import pytest

from moorage.agent.link.client import LinkClient
from moorage.agent.link.outputs import OutputLink
from moorage.common.link.dial import Dialer
from moorage.common.link.messages import Report
from moorage.common.model.ids import AgentId


async def test_link_that_is_to_end_ends_while_a_report_fails() -> None:
    """At the same moment: the failure must not replace the end."""

    def fail(whole: bool) -> Report:
        running.cancel()
        raise TimeoutError

    async with h.run_fake_manager() as manager:
        link = LinkClient(
            Dialer(manager.target, token=h.TOKEN, clock=h.CLOCK),
            clock=h.CLOCK, interval_s=60, stream_numbers=count(1), make_report=fail,
            apply_orders=lambda orders: True, open_log=lambda request: nothing(),
        )  # fmt: skip
        running = asyncio.create_task(link.run())
        done, _ = await asyncio.wait([running], timeout=30)
        running.cancel()
        assert done, "it went on"
        assert running.cancelled()


class EndsWithAnError:
    """A channel and a call. Both raise their own error when the awaiting task is cancelled, as a
    ``grpc.aio`` call may if its status arrives at that moment."""

    async def __aenter__(self) -> EndsWithAnError:
        await self.end()
        return self

    async def __aexit__(self, *exc: object) -> None: ...

    async def end(self, *args: object, **options: object) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            no_metadata = grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(
                grpc.StatusCode.UNAUTHENTICATED, no_metadata, no_metadata, details="wrong token"
            ) from None

    NeededOutputs = end


def link_of(dialer: Dialer) -> LinkClient:
    return LinkClient(
        dialer, clock=h.CLOCK, interval_s=60, stream_numbers=count(1), make_report=lambda whole: None,  # type: ignore[arg-type,return-value]
        apply_orders=lambda orders: True, open_log=lambda request: nothing(),
    )  # fmt: skip


@pytest.mark.parametrize(
    "work",
    [
        lambda dialer: link_of(dialer).run(),
        lambda dialer: dialer.maintain(),
        lambda dialer: dialer.prefer("127.0.0.1:1", 60.0),
        lambda dialer: OutputLink(AgentId("a"), dialer, EndsWithAnError).needed([]),  # type: ignore[arg-type]
    ],
    ids=["link", "maintenance", "other manager", "outputs"],
)
async def test_cancellation_that_comes_out_as_an_error_still_ends_the_work(
    work: Callable[[Dialer], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``cancel_and_wait`` cancels once, so work that continued would never end."""
    dialer = Dialer("127.0.0.1:1", token=h.TOKEN, clock=h.CLOCK)
    monkeypatch.setattr(dialer, "channel", lambda *args: EndsWithAnError())
    running = asyncio.create_task(work(dialer))
    await asyncio.sleep(0.01)
    running.cancel()
    done, _ = await asyncio.wait([running], timeout=5)
    running.cancel()
    assert done, "it went on"
    assert running.cancelled(), "it was not cancelled, and its caller goes on"


async def nothing() -> AsyncGenerator[bytes, None]:
    yield b""
