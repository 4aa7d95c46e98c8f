"""Answers from a HEAppE server that are not what they seem: streams that fail with a real status,
ids that are reported as unknown before authentication, and pieces of files with the requested
offset."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.wire.heappe_harness import Running, plain

from moorage.agent.runtimes.heappe.client import HeappeClient
from moorage.agent.runtimes.heappe.errors import HeappeFailed, SiteFault
from moorage.agent.runtimes.heappe.records import HeappeRecord
from moorage.agent.runtimes.heappe.tracked import JobLogs, TrackedJob
from moorage.agent.runtimes.heappe.transport import Account
from moorage.agent.state.logs import LogStore
from moorage.common.model.ids import KernelId

PROFILES = pytest.mark.parametrize("profile", ["6.3.2", "6.5"])
KERNEL = KernelId("01234567-89ab-7cde-8f01-23456789abcd")
_CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}


@PROFILES
@pytest.mark.parametrize(
    ("trap", "status"),
    [
        ({"gateway_html": 9}, 502),
        ({"gateway_html": 9, "gateway_status": 504}, 502),
        ({"empty_500": 9}, 502),
    ],
)
async def test_a_stream_that_fails_with_a_status_fails(
    profile: str, trap: dict[str, int], status: int
) -> None:
    async with plain(profile, patience_s=0.2) as at:
        at.server.switches.only = "HttpPostToJobNodeStream"
        for name, value in trap.items():
            setattr(at.server.switches, name, value)

        async with at.http.post(
            f"{at.url}/v1/chat/completions", json=_CHAT | {"stream": True}
        ) as got:
            assert (got.status, got.content_type) == (status, "application/json")
            assert "html" not in (await got.text()).replace("text/html", "")

        for name in ("gateway_html", "empty_500"):
            setattr(at.server.switches, name, 0)

        async with at.http.post(f"{at.url}/v1/chat/completions", json=_CHAT) as got:
            assert got.status == 200


@PROFILES
async def test_the_headers_of_a_stream_are_checked_before_it_begins(profile: str) -> None:
    async with plain(profile) as at:
        way = await at.keeper.way()
        with pytest.raises(HeappeFailed) as refused:
            async with at.client.stream(way.tunnel, "/v1/completions", {"X": "x" * 101}, "{}"):
                pass
        assert (refused.value.problem, refused.value.status) == (SiteFault.INVALID, 400)


@PROFILES
async def test_an_unknown_id_says_nothing_about_the_credentials(profile: str) -> None:
    """Ids are looked up before the caller is authenticated."""
    async with plain(profile) as at:
        stranger = HeappeClient(Account(at.server.url, "agent", "wrong"), at.clock)
        try:
            for client in (at.client, stranger):
                for call in (client.job(999_999), client.node_ips(999_999)):
                    with pytest.raises(HeappeFailed) as refused:
                        await call
                    assert refused.value.problem in (SiteFault.INVALID, SiteFault.NOT_FOUND)
        finally:
            await stranger.close()


@PROFILES
async def test_the_agent_counts_the_bytes_of_a_log(tmp_path: Path, profile: str) -> None:
    """The server returns the requested offset, cuts characters in two, and leaves out missing
    files."""
    async with plain(profile) as at:
        logs = LogStore(tmp_path)
        job = tracked(at)
        copied = JobLogs(at.client, logs)
        output = at.server.database.jobs[at.job.id].directory / str(at.job.task.id) / "stdout.txt"
        output.unlink()
        await copied.pull(job)
        assert not logs.exists(KERNEL)
        whole = "wörd für wörd\n€ and 漢字\n".encode()
        for end in range(1, len(whole) + 1):
            output.write_bytes(whole[:end])
            if end % 5 == 0:
                copied = JobLogs(at.client, logs)  # the agent was restarted

            await copied.pull(job)

        assert logs.tail(KERNEL, 1000).encode() == whole


def tracked(at: Running) -> TrackedJob:
    return TrackedJob(HeappeRecord(KERNEL, at.job.name, at.job.id, at.job.task.id, running_at=1.0))
