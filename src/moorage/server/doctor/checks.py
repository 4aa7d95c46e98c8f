"""What a node's facts mean for an agent: ok, warn or fail, and what to do about it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from moorage.common.model.slots import show_amount
from moorage.common.model.versions import gap

GIB = 1024**3
Mark = Literal["ok", "warn", "fail"]
_MARGIN_S, _SKEW_S = 5.0, 300.0
_CONTROLLERS = ("cpu", "memory", "pids")


@dataclass(frozen=True, slots=True)
class Line:
    """``advice``: the next step; empty where there is none to take."""

    mark: Mark
    name: str
    found: str
    advice: str = ""


def clock(ahead_s: float) -> Line:
    """``ahead_s``: the manager's clock before ours, in seconds."""
    found = f"{abs(ahead_s):.1f} s {'behind' if ahead_s > 0 else 'ahead of'} the manager's"
    advice = "set it: timedatectl set-ntp true"
    if abs(ahead_s) >= _SKEW_S:
        return Line("fail", "clock", found, advice)
    return Line("warn", "clock", found, advice) if abs(ahead_s) >= _MARGIN_S else Line("ok", "clock", found)


def versions(manager: str, agent: str) -> Line:
    wrong = gap(manager, agent)
    found = wrong or f"agent {agent}, manager {manager}"
    return Line(
        "warn" if wrong else "ok", "versions", found, "see docs/operating.md, Upgrades" if wrong else ""
    )


def certificate(ends: datetime, now: datetime, name: str, path: str) -> Line:
    found = f"agent {name!r} until {ends:%Y-%m-%d} ({path})"
    if now > ends:
        again = "moorage peers rm agent NAME where the manager is; then remove that file, and join again"
        return Line("fail", "certificate", f"expired: {found}", again)
    if ends - now < timedelta(days=14):
        advice = "it should have been renewed: see why the agent cannot reach the manager"
        return Line("warn", "certificate", found, advice)
    return Line("ok", "certificate", found)


def disk(what: str, path: str, free: int, total: int, *, needs: int) -> Line:
    """``needs``: bytes that should be free; a tenth of that is too little to work with."""
    found = f"{path}: {show_amount('mem', free)} of {show_amount('mem', total)} free"
    advice = f"{show_amount('mem', needs)} should be free there"
    if free < needs // 10:
        return Line("fail", what, found, advice)
    return Line("warn", what, found, advice) if free < needs else Line("ok", what, found)


def ports(span: str, host: str, total: int, free: int, ephemeral: tuple[int, int] | None) -> Line:
    """``ephemeral``: from which range the kernel of the system takes ports for outgoing connections."""
    found = f"{free} of {total} free in {span} on {host}"
    low, _, high = span.partition("-")
    if free == 0:
        return Line("fail", "ports", found, "set agent.port_range to a range that nobody uses")
    if ephemeral is not None and int(low) <= ephemeral[1] and int(high) >= ephemeral[0]:
        why = f"{found}; outgoing connections use {ephemeral[0]}-{ephemeral[1]}, and take some of them"
        return Line("warn", "ports", why, "set agent.port_range outside of net.ipv4.ip_local_port_range")
    if free < total // 2:
        return Line("warn", "ports", found, "is another program in that range? see `ss -ltnp`")
    return Line("ok", "ports", found)


def cgroups(version: int, controllers: frozenset[str]) -> Line:
    """``version``: 1 or 2; 0: none are mounted. ``controllers``: what can be limited."""
    if version == 0:
        return Line("warn", "cgroups", "none are mounted", "containers need them: mount /sys/fs/cgroup")
    missing = [name for name in _CONTROLLERS if name not in controllers]
    found = (
        f"version {version}, with {', '.join(sorted(controllers.intersection(_CONTROLLERS))) or 'nothing'}"
    )
    if missing:
        advice = f"{', '.join(missing)} cannot be limited for containers; see the boot options of this system"
        return Line("warn", "cgroups", found, advice)
    return Line("ok", "cgroups", found)


def gpus(driver: str, count: int, error: str, wanted: bool) -> Line:
    """``wanted``: the settings name GPUs, so there must be some."""
    if not error and count:
        return Line("ok", "NVIDIA driver", f"{driver}, {count} GPUs")
    found = f"no GPUs ({error})" if error else f"driver {driver}, but no GPU"
    advice = "install the driver (nvidia-smi must work), or leave agent.gpus out"
    return Line("fail", "NVIDIA driver", found, advice) if wanted else Line("ok", "NVIDIA driver", found)


def docker(info: Mapping[str, Any], version: str, gpus_here: int) -> list[Line]:
    """``info``: as the engine tells it (`docker info`)."""
    where = f"engine {version}, data in {info.get('DockerRootDir', '?')}"
    lines = [Line("ok", "Docker", where)]
    if not info.get("LiveRestoreEnabled"):
        lines.append(
            Line(
                "warn",
                "live-restore",
                "off: a restart of the engine ends its containers",
                'set "live-restore": true in /etc/docker/daemon.json',
            )
        )
    else:
        lines.append(Line("ok", "live-restore", "on"))
    runtimes = sorted(info.get("Runtimes") or ())
    has = "nvidia" in runtimes or bool(info.get("CDISpecDirs"))
    if gpus_here and not has:
        found = f"{gpus_here} GPUs, but the engine knows only {', '.join(runtimes) or 'no runtimes'}"
        advice = "install the NVIDIA container toolkit: nvidia-ctk runtime configure --runtime=docker"
        lines.append(Line("fail", "NVIDIA runtime", found, advice))
    elif gpus_here:
        lines.append(Line("ok", "NVIDIA runtime", ", ".join(runtimes)))
    lines += [
        Line("warn", "Docker says", str(words).removeprefix("WARNING: "))
        for words in info.get("Warnings") or ()
    ]
    return lines


def verdict(lines: list[Line]) -> int:
    """The exit code: 1 where something fails."""
    return int(any(line.mark == "fail" for line in lines))
