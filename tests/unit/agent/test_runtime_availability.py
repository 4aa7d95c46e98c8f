"""Availability of a runtime: when it is withdrawn, and why its agent takes no new kernels."""

from __future__ import annotations

from typing import cast

from moorage.agent.runtimes.availability import UNAVAILABLE_AFTER_S, RuntimeAvailability
from moorage.agent.runtimes.base import Isolation, Runtime, RuntimeFailed
from moorage.agent.runtimes.heappe.errors import HeappeFailed, SiteFault
from moorage.common.aio.clock import ManualClock


class Site:
    """Answers as instructed."""

    name = "heappe"
    error: RuntimeFailed | None = None

    async def probe(self) -> Isolation:
        if self.error is not None:
            raise self.error
        return Isolation()


def availability_of(site: Site, clock: ManualClock) -> RuntimeAvailability:
    return RuntimeAvailability(cast(Runtime, site), clock)


REFUSED = HeappeFailed(SiteFault.CREDENTIALS, "wrong", call="ListJobs", status=401)
SILENT = HeappeFailed(SiteFault.UNREACHABLE, "no route to host", call="ListJobs")
WHY = (
    "HEAppE ListJobs failed with 401 (credentials): wrong; check agent.heappe_user, and its password or "
    "token"
)


async def test_refused_credentials_withdraw_it_at_once_until_they_are_taken() -> None:
    clock = ManualClock()
    site = Site()
    availability = availability_of(site, clock)
    await availability.check()
    assert (availability.offered, availability.problem) == (True, "")
    site.error = REFUSED

    for _ in range(3):
        await availability.check()
        assert (availability.offered, availability.problem) == (False, WHY), "the cause, once"
        clock.advance(30)

    site.error = None
    await availability.check()
    assert (availability.offered, availability.problem) == (True, "")


async def test_silence_withdraws_it_after_a_while_with_its_first_words() -> None:
    clock = ManualClock()
    site = Site()
    availability = availability_of(site, clock)
    await availability.check()
    site.error = SILENT
    clock.advance(UNAVAILABLE_AFTER_S / 2)
    await availability.check()
    assert (availability.offered, availability.problem) == (True, "")
    clock.advance(UNAVAILABLE_AFTER_S)
    await availability.check()
    assert not availability.offered
    said = availability.problem
    assert "no route to host" in said
    site.error = HeappeFailed(SiteFault.UNREACHABLE, "another word", call="ListJobs")
    clock.advance(UNAVAILABLE_AFTER_S)
    await availability.check()
    assert availability.problem == said
    site.error = REFUSED
    await availability.check()
    assert availability.problem == WHY, "what it says is newer"


async def test_one_that_never_answered_says_so() -> None:
    site = Site()
    site.error = SILENT
    availability = availability_of(site, ManualClock())
    await availability.check()
    assert not availability.offered
    assert "no route to host" in availability.problem
