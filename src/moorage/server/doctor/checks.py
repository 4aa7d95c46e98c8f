"""Node checks: turn measured values into a status and a next step. Pure; ``node`` makes the
measurements."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from moorage.common.model.slots import format_amount
from moorage.common.model.versions import incompatibility

GIB = 1024**3
Status = Literal["ok", "warn", "fail", "absent", "missing"]
# Clock differences in seconds. Above the first, expiry times are noticeably off; above the second,
# certificates and tokens are refused.
_CLOCK_WARN_S = 5.0
_CLOCK_FAIL_S = 300.0
_RENEWAL_OVERDUE = timedelta(days=14)
_CONTROLLERS = ("cpu", "memory", "pids")


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check. ``next_step`` is empty if there is nothing to do.

    Node checks report ok, warn or fail. Host checks report ok, warn, absent (an optional part is
    not installed) or missing (something required is not installed).
    """

    status: Status
    name: str
    detail: str
    next_step: str = ""


def clock(ahead_s: float) -> CheckResult:
    """Check the clock. ``ahead_s``: how many seconds the manager's clock is ahead of this
    node's."""
    detail = f"{abs(ahead_s):.1f} s {'behind' if ahead_s > 0 else 'ahead of'} the manager's"
    next_step = "set it: timedatectl set-ntp true"
    if abs(ahead_s) >= _CLOCK_FAIL_S:
        return CheckResult("fail", "clock", detail, next_step)
    if abs(ahead_s) >= _CLOCK_WARN_S:
        return CheckResult("warn", "clock", detail, next_step)
    return CheckResult("ok", "clock", detail)


def versions(manager: str, agent: str) -> CheckResult:
    if problem := incompatibility(manager, agent):
        return CheckResult("warn", "versions", problem, "see docs/upgrades.md")
    return CheckResult("ok", "versions", f"agent {agent}, manager {manager}")


def certificate(ends: datetime, now: datetime, name: str, path: str) -> CheckResult:
    detail = f"agent {name!r} until {ends:%Y-%m-%d} ({path})"
    if now > ends:
        revoke = "run `moorage peers revoke agent NAME` on the manager's host"
        next_step = f"{revoke}, then remove that file and join again"
        return CheckResult("fail", "certificate", f"expired: {detail}", next_step)
    if ends - now < _RENEWAL_OVERDUE:
        next_step = "renewal is overdue: find out why the agent cannot reach the manager"
        return CheckResult("warn", "certificate", detail, next_step)
    return CheckResult("ok", "certificate", detail)


def disk(name: str, path: str, free: int, total: int, *, needed: int) -> CheckResult:
    """Check a disk; sizes are in bytes. Warns below ``needed`` free bytes, and fails below a tenth
    of that."""
    detail = f"{path}: {format_amount('mem', free)} of {format_amount('mem', total)} free"
    next_step = f"free some space: {format_amount('mem', needed)} should be free"
    if free < needed // 10:
        return CheckResult("fail", name, detail, next_step)

    return (
        CheckResult("warn", name, detail, next_step)
        if free < needed
        else CheckResult("ok", name, detail)
    )


def ports(
    port_range: str, host: str, total: int, free: int, *, ephemeral: tuple[int, int] | None
) -> CheckResult:
    """Check the ports. ``ephemeral``: the operating system's port range for outgoing connections,
    if known."""
    detail = f"{free} of {total} free in {port_range} on {host}"
    low, _, high = port_range.partition("-")
    if free == 0:
        return CheckResult("fail", "ports", detail, "set agent.port_range to an unused range")

    if ephemeral is not None and int(low) <= ephemeral[1] and int(high) >= ephemeral[0]:
        detail += f"; overlaps the range for outgoing connections, {ephemeral[0]}-{ephemeral[1]}"
        return CheckResult(
            "warn", "ports", detail, "set agent.port_range outside net.ipv4.ip_local_port_range"
        )

    if free < total // 2:
        return CheckResult(
            "warn", "ports", detail, "find the program that uses this range: ss -ltnp"
        )

    return CheckResult("ok", "ports", detail)


def cgroups(version: int, controllers: frozenset[str]) -> CheckResult:
    """Check control groups. ``version``: 1 or 2, or 0 if cgroups are not mounted. ``controllers``:
    the available controllers."""
    if version == 0:
        return CheckResult(
            "warn", "cgroups", "not mounted", "containers need them: mount /sys/fs/cgroup"
        )

    missing = [name for name in _CONTROLLERS if name not in controllers]
    available = ", ".join(sorted(controllers.intersection(_CONTROLLERS)))
    detail = f"version {version}, with {available or 'no controllers'}"
    if missing:
        next_step = (
            f"{', '.join(missing)} cannot be limited for containers: check the kernel's "
            "boot options"
        )
        return CheckResult("warn", "cgroups", detail, next_step)

    return CheckResult("ok", "cgroups", detail)


def isolation(problem: str) -> CheckResult:
    """Check isolation. ``problem``: why the agent cannot isolate processes, and the next step;
    empty if it can."""
    if not problem:
        return CheckResult("ok", "isolation", "processes of members run in a sandbox")
    detail, _, next_step = problem.partition("; ")
    return CheckResult(
        "warn", "isolation", f"processes of members are refused: {detail}", next_step
    )


def docker(
    info: Mapping[str, Any], version: str, gpu_count: int, cdi: Collection[str] = ()
) -> list[CheckResult]:
    """Check Docker. ``info``: the engine's description of itself, as in ``docker info``. ``cdi``:
    the NVIDIA GPUs that it knows through CDI."""
    results = [
        CheckResult("ok", "Docker", f"engine {version}, data in {info.get('DockerRootDir', '?')}")
    ]
    if info.get("LiveRestoreEnabled"):
        results.append(CheckResult("ok", "live-restore", "on"))
    else:
        detail = "off: a restart of the engine ends its containers"
        next_step = 'set "live-restore": true in /etc/docker/daemon.json'
        results.append(CheckResult("warn", "live-restore", detail, next_step))

    runtimes = sorted(info.get("Runtimes") or ())
    if gpu_count and cdi:
        results.append(CheckResult("ok", "NVIDIA runtime", f"CDI knows {', '.join(sorted(cdi))}"))
    elif gpu_count and "nvidia" in runtimes:
        results.append(CheckResult("ok", "NVIDIA runtime", ", ".join(runtimes)))
    elif gpu_count:
        detail = (
            f"{gpu_count} GPUs, but the engine knows only {', '.join(runtimes) or 'no runtimes'}"
        )
        next_step = (
            "install the NVIDIA container toolkit: nvidia-ctk runtime configure --runtime=docker"
        )
        if folders := info.get("CDISpecDirs"):
            detail += f", and no GPU by CDI in {', '.join(folders)}"
            next_step = f"nvidia-ctk cdi generate --output={folders[0]}/nvidia.yaml"

        results.append(CheckResult("fail", "NVIDIA runtime", detail, next_step))

    results += [
        CheckResult("warn", "Docker warning", str(warning).removeprefix("WARNING: "))
        for warning in info.get("Warnings") or ()
    ]
    return results


def cluster_networks(problem: str) -> CheckResult:
    """Check cluster networks. ``problem``: why containers on this node cannot join a cluster over
    several nodes; empty if they can."""
    if not problem:
        return CheckResult(
            "ok", "cluster networks", "WireGuard connects containers over several nodes"
        )

    next_step = (
        "apt install iproute2 wireguard-tools wireguard-go, as root; or set agent.docker_multi_node"
    )
    return CheckResult(
        "warn", "cluster networks", f"no clusters over several nodes: {problem}", next_step
    )


def exit_code(results: Iterable[CheckResult]) -> int:
    """1 if a check failed or a required part is missing, otherwise 0."""
    return int(any(result.status in ("fail", "missing") for result in results))
