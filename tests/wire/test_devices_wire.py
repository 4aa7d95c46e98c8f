"""Devices from another vendor: those of the example in ``docs/devices.md`` are offered, allocated,
fenced and returned to use."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import manager_harness as h
import pytest
import pytest_asyncio
from manager_harness import client as client
from manager_harness import manager as manager
from test_usage_wire import eventually

from moorage.agent import Agent
from moorage.agent.devices import installed_vendors
from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import AgentSettings, CommonSettings
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import Status
from moorage.common.views.resources import OfferView
from moorage.manager import Manager
from moorage.sdk import Client

DOCS = Path(__file__).parents[2] / "docs" / "devices.md"


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install the example as a package; returns the directory of its two devices."""
    code, toml = re.findall(r"```(?:python|toml)\n(.*?)```", DOCS.read_text(), re.DOTALL)
    site = tmp_path / "site"
    root = tmp_path / "acme"
    about = site / "acme_moorage-1.0.dist-info"
    about.mkdir(parents=True)
    (site / "acme_moorage.py").write_text(code)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-moorage\nVersion: 1.0\n")
    entry = toml.splitlines()[1].replace('"', "")
    (about / "entry_points.txt").write_text(
        f"[moorage.inventories]\n{entry}\nbroken = no_such_module:X\n"
    )

    for name in ("acme-0", "acme-1"):
        (root / name).mkdir(parents=True)
        for file, text in (("memory", "8000000000"), ("used", "0"), ("error", "")):
            (root / name / file).write_text(text)

    monkeypatch.setenv("ACME_ROOT", str(root))
    monkeypatch.syspath_prepend(str(site))
    yield root
    sys.modules.pop("acme_moorage", None)


@pytest_asyncio.fixture
async def agent(manager: Manager, acme: Path, tmp_path: Path) -> AsyncIterator[Agent]:
    settings = AgentSettings(
        id="node-1",
        manager=manager.link_address,
        docker="off",
        stats_interval_s=0.2,
        report_interval_s=0.5,
        device_probation_s=0.5,
        device_free_mem="1GiB",
        device_free_timeout_s=0.3,
    )
    async with Agent(
        settings,
        CommonSettings(link_tls="off"),
        clock=SystemClock(),
        link_token=h.TOKEN,
        home=tmp_path / "agent",
    ) as agent:
        yield agent


async def offers(client: Client) -> dict[str, OfferView]:
    found = await client.agents.list()
    return {o.device_id: o for view in found for o in view.offers if o.slot == "acme.device"}


def job(name: str) -> SessionSpec:
    command = ["/bin/sh", "-c", "echo sees:$ACME_VISIBLE_DEVICES; sleep 600"]
    return SessionSpec(name=name, command=command, resources={"acme.device": 1})


async def until(client: Client, name: str, *statuses: Status) -> None:
    async def there() -> bool:
        return (await client.sessions.get(name)).status in statuses

    await eventually(there)


async def test_device_is_offered_allocated_and_measured(
    client: Client, agent: Agent, acme: Path
) -> None:
    async def offered() -> bool:
        return set(await offers(client)) == {"acme-0", "acme-1"}

    await eventually(offered)
    await client.sessions.create(job("one"))
    await until(client, "one", Status.RUNNING)
    device = (await client.sessions.get("one")).kernels[0].devices[0].device_id

    async def logged() -> bool:
        return f"sees:{device}\n".encode() in b"".join(
            [part async for part in client.sessions.logs("one")]
        )

    await eventually(logged)
    (acme / device / "used").write_text("5000")

    async def measured() -> bool:
        node = await client.agents.stats("node-1")
        return {d.device_id: d.memory for d in node.devices}.get(device) == 5000

    await eventually(measured)

    async def attributed() -> bool:
        """Without per-process data, an exclusive device is entirely attributed to its kernel."""
        return (await client.sessions.stats("one")).kernels[0].latest is not None

    await eventually(attributed)
    await client.sessions.stop("one")
    await until(client, "one", Status.TERMINATED)


async def test_unreleased_memory_refuses_the_next_kernel(
    client: Client, agent: Agent, acme: Path
) -> None:
    for name in ("acme-0", "acme-1"):
        (acme / name / "used").write_text("5000000000")

    async def offered() -> bool:
        return len(await offers(client)) == 2

    await eventually(offered)
    await client.sessions.create(job("one"))

    reasons: list[str] = []

    async def fenced() -> bool:
        """Whether the first device is fenced; if so, its session tries the other one."""
        found = (await offers(client)).values()
        reasons[:] = [offer.unhealthy_reason for offer in found if not offer.healthy]
        return bool(reasons)

    await eventually(fenced)
    unhealthy_reason = reasons[0]
    assert re.fullmatch(
        r"4\.66GiB of acme-[01] still in use, and the driver lists no process", unhealthy_reason
    )

    async def in_history() -> bool:
        entries = await client.sessions.history("one")
        return any(
            entry.reason is Reason.DEVICE_BUSY and unhealthy_reason in entry.detail
            for entry in entries
        )

    await eventually(in_history)
    await client.sessions.stop("one")

    # The device becomes available again by itself once its memory is free and its probation is
    # over.
    for name in ("acme-0", "acme-1"):
        (acme / name / "used").write_text("0")

    async def back() -> bool:
        return all(
            offer.healthy and not offer.unhealthy_reason
            for offer in (await offers(client)).values()
        )

    await eventually(back)
    await client.sessions.create(job("two"))
    await until(client, "two", Status.RUNNING)
    await client.sessions.stop("two")
    await until(client, "two", Status.TERMINATED)


async def test_kernel_waiting_for_device_memory_reports_it_and_starts_when_free(
    manager: Manager, client: Client, acme: Path, tmp_path: Path
) -> None:
    settings = AgentSettings(
        id="node-1",
        manager=manager.link_address,
        docker="off",
        report_interval_s=0.5,
        device_free_timeout_s=60,
    )
    for name in ("acme-0", "acme-1"):
        (acme / name / "used").write_text("5000000000")

    async with Agent(
        settings,
        CommonSettings(link_tls="off"),
        clock=SystemClock(),
        link_token=h.TOKEN,
        home=tmp_path / "agent",
    ):
        await client.sessions.create(job("one"))

        async def waits() -> bool:
            session = await client.sessions.get("one")
            kernels = session.kernels
            return (
                session.status is Status.PREPARING and "waiting for GPU memory" in kernels[0].detail
            )

        await eventually(waits)
        for name in ("acme-0", "acme-1"):
            (acme / name / "used").write_text("0")

        await until(client, "one", Status.RUNNING)
        assert (await client.sessions.get("one")).kernels[0].detail == ""
        assert all(offer.healthy for offer in (await offers(client)).values())

        # A waiting kernel can be stopped.
        for name in ("acme-0", "acme-1"):
            (acme / name / "used").write_text("5000000000")

        await client.sessions.create(job("two"))
        await until(client, "two", Status.PREPARING)
        for name in ("two", "one"):
            await client.sessions.stop(name)
            await until(client, name, Status.TERMINATED)


async def test_unhealthy_device_is_reported_with_its_reason(
    client: Client, agent: Agent, acme: Path
) -> None:
    async def reasons(*expected: str) -> bool:
        return [
            offer.unhealthy_reason for _, offer in sorted((await offers(client)).items())
        ] == list(expected)

    await eventually(lambda: reasons("", ""))
    (acme / "acme-1" / "error").write_text("it burns\n")
    await eventually(lambda: reasons("", "it burns"))
    (acme / "acme-1" / "error").write_text("")
    await eventually(lambda: reasons("", ""))


def test_failing_vendor_affects_only_its_own_devices(acme: Path) -> None:
    (vendor,) = installed_vendors()
    assert [(o.device_id, o.healthy) for o in vendor.offers()] == [
        ("acme-0", True),
        ("acme-1", True),
    ]
    (acme / "acme-0" / "memory").write_text("much")
    failed = vendor.offers()
    assert [(o.device_id, o.healthy) for o in failed] == [("acme-0", False), ("acme-1", False)]
    assert "'acme' failed in offers" in failed[0].unhealthy_reason
    (acme / "acme-0" / "used").unlink()
    (acme / "acme-0" / "error").unlink()
    devices = {o.device_id: o.parent for o in failed}
    assert vendor.measure(devices) == {}
    assert vendor.unhealthy(devices) == {}
    (acme / "acme-0" / "memory").write_text("8")
    assert all(o.healthy and not o.unhealthy_reason for o in vendor.offers())
