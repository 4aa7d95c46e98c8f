"""Node checks: the status and the next step for measured values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from moorage.agent.devices.nvidia import DriverReport
from moorage.common.link.messages import SlotOffer
from moorage.common.model.ids import DeviceId
from moorage.server.doctor import checks
from moorage.server.doctor.checks import GIB, CheckResult
from moorage.server.doctor.gpus import check_driver

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CONTROLLERS = frozenset({"cpu", "memory", "pids", "io"})
HEALTHY_ENGINE = {
    "DockerRootDir": "/var/lib/docker",
    "LiveRestoreEnabled": True,
    "Runtimes": {"runc": {}, "nvidia": {}},
}


def certificate_ending_in(days: float) -> CheckResult:
    return checks.certificate(NOW + timedelta(days=days), NOW, "node-7", "/x.json")


def driver(
    version: str,
    faults: list[str],
    absence: str = "",
    *,
    unserved: bool = False,
    configured: bool = False,
) -> CheckResult:
    """The check of a node with one GPU for each of ``faults``, where "" is a healthy one."""
    offers = tuple(
        SlotOffer(
            "cuda.device", 1000, DeviceId(f"GPU-{n}"), healthy=not fault, unhealthy_reason=fault
        )
        for n, fault in enumerate(faults)
    )
    return check_driver(DriverReport(version, absence, unserved, offers), configured=configured)


CASES = [
    (checks.clock(0.4), "ok", "0.4 s behind"),
    (checks.clock(-4.9), "ok", "ahead of"),
    (checks.clock(5), "warn", "5.0 s behind"),
    (checks.clock(-300), "fail", "300.0 s ahead of"),
    (checks.versions("0.4.2", "0.4.0"), "ok", "agent 0.4.0"),
    (checks.versions("0.4.2", "0.3.9"), "ok", "manager 0.4.2"),
    (checks.versions("0.4.2", "0.2.9"), "warn", "more than one version behind"),
    (checks.versions("0.4.2", "0.5.0"), "warn", "newer than the manager's"),
    (checks.versions("1.0.0", "0.9.0"), "warn", "more than one version behind"),
    (checks.versions("0.4.2", "dev"), "ok", "agent dev"),
    (certificate_ending_in(60), "ok", "node-7"),
    (certificate_ending_in(13), "warn", "2026-01-14"),
    (certificate_ending_in(-1), "fail", "expired"),
    (checks.disk("d", "/d", 10 * GIB, 20 * GIB, needed=10 * GIB), "ok", "10GiB of 20GiB free"),
    (checks.disk("d", "/d", 10 * GIB - 1, 20 * GIB, needed=10 * GIB), "warn", "free"),
    (checks.disk("d", "/d", GIB - 1, 20 * GIB, needed=10 * GIB), "fail", "free"),
    (checks.ports("21000-21999", "h", 1000, 999, ephemeral=(32768, 60999)), "ok", "999 of 1000"),
    (checks.ports("21000-21999", "h", 1000, 499, ephemeral=None), "warn", "499 of 1000"),
    (checks.ports("21000-21999", "h", 1000, 0, ephemeral=None), "fail", "0 of 1000"),
    (
        checks.ports("32000-32768", "h", 769, 769, ephemeral=(32768, 60999)),
        "warn",
        "outgoing connections, 32768",
    ),
    (checks.cgroups(2, CONTROLLERS), "ok", "version 2, with cpu, memory, pids"),
    (checks.cgroups(1, CONTROLLERS - {"pids"}), "warn", "version 1, with cpu, memory"),
    (checks.isolation(""), "ok", "in a sandbox"),
    (checks.isolation("there is no nft; install nftables"), "warn", "refused: there is no nft"),
    (checks.cgroups(0, frozenset()), "warn", "not mounted"),
    (driver("550.54", [""] * 8), "ok", "550.54, 8 GPUs"),
    (driver("", [], "no driver"), "ok", "no GPUs (no driver)"),
    (driver("", [], "no driver", configured=True), "fail", "no GPUs (no driver)"),
    (driver("550.54", [], configured=True), "fail", "but no GPU"),
    (driver("550.54", [], unserved=True), "warn", "serves no GPU, although this machine has one"),
    (driver("", ["version mismatch"] * 2), "fail", "version mismatch"),
    (driver("550.54", ["", "GPU is lost", ""]), "fail", "550.54, 2 of 3 GPUs; GPU-1: GPU is lost"),
    (driver("550.54", ["lost"] * 5), "fail", "GPU-2: lost; and 2 more"),
]


@pytest.mark.parametrize(
    ("result", "status", "detail"),
    CASES,
    ids=[f"{case[0].name}-{number}" for number, case in enumerate(CASES)],
)
def test_check_results(result: CheckResult, status: str, detail: str) -> None:
    assert result.status == status
    assert detail in result.detail
    assert bool(result.next_step) is (status != "ok"), "exactly the problems have a next step"


@pytest.mark.parametrize(
    ("change", "gpus", "statuses"),
    [
        ({}, 0, {"Docker": "ok", "live-restore": "ok"}),
        ({}, 2, {"Docker": "ok", "live-restore": "ok", "NVIDIA runtime": "ok"}),
        ({"LiveRestoreEnabled": False}, 0, {"Docker": "ok", "live-restore": "warn"}),
        (
            {"Runtimes": {"runc": {}}},
            2,
            {"Docker": "ok", "live-restore": "ok", "NVIDIA runtime": "fail"},
        ),
        (
            {"Runtimes": {"runc": {}}, "CDISpecDirs": ["/etc/cdi"]},
            2,
            {"Docker": "ok", "live-restore": "ok", "NVIDIA runtime": "fail"},
        ),
        (
            {"Warnings": ["WARNING: No swap limit support"]},
            0,
            {"Docker": "ok", "live-restore": "ok", "Docker warning": "warn"},
        ),
    ],
)
def test_docker_engine_checks(
    change: dict[str, object], gpus: int, statuses: dict[str, str]
) -> None:
    results = checks.docker(HEALTHY_ENGINE | change, "29.1", gpus)
    assert {result.name: result.status for result in results} == statuses


@pytest.mark.parametrize(
    ("cdi", "status", "text"),
    [
        ((), "fail", "no GPU by CDI in /etc/cdi"),
        (("GPU-a", "0"), "ok", "CDI knows 0, GPU-a"),
    ],
)
def test_gpus_that_an_engine_knows_by_cdi(cdi: tuple[str, ...], status: str, text: str) -> None:
    engine = HEALTHY_ENGINE | {"Runtimes": {"runc": {}}, "CDISpecDirs": ["/etc/cdi"]}
    (found,) = [r for r in checks.docker(engine, "29.1", 2, cdi) if r.name == "NVIDIA runtime"]
    assert (found.status, text in found.detail) == (status, True)
    assert bool(found.next_step) is (status == "fail")


def test_exit_code_is_1_for_failures_only() -> None:
    assert checks.exit_code([CheckResult("ok", "a", ""), CheckResult("warn", "b", "")]) == 0
    assert checks.exit_code([CheckResult("ok", "a", ""), CheckResult("fail", "b", "")]) == 1
