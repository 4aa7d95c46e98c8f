"""A kernel's WireGuard interface on its cluster's network.

The interface is created in the node's network namespace and then moved into that of the kernel, a
container or a sandboxed process. Its encrypted packets still go through the node, and only the
kernel can use it. The interface disappears with the kernel. If Linux on the node lacks WireGuard, a
``wireguard-go`` process replaces it and exits with the interface.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import socket
import subprocess
from hashlib import sha256
from itertools import count
from pathlib import Path

from moorage.agent.runtimes.base import OVERLAY_INTERFACE, CreateFailed, Launch, Overlay
from moorage.agent.runtimes.host_names import resolve_hosts
from moorage.common.model.reasons import Reason

_TIMEOUT_S = 10.0
_PROGRAMS = ("ip", "wg", "nsenter")
_USERSPACE = "wireguard-go"
# WireGuard adds 80 bytes to an IPv6 packet.
_MTU = "1420"
_PREFIX = 16
# Keeps the mappings for peers behind a stateful firewall.
_KEEPALIVE_S = 25
_probes = count()
# Error on a node whose Linux lacks IPv6, which WireGuard does not need.
_NO_SUCH_FAMILY = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


def configuration(overlay: Overlay, endpoints: dict[str, str]) -> str:
    """The configuration for ``wg setconf``. ``endpoints``: the IP addresses of the peers' nodes by
    hostname."""
    lines = ["[Interface]", f"PrivateKey = {overlay.private_key}", f"ListenPort = {overlay.port}"]
    for peer in overlay.peers:
        address = endpoints[peer.hostname]
        host = f"[{address}]" if ":" in address else address
        lines += [
            "[Peer]",
            f"PublicKey = {peer.public_key}",
            f"AllowedIPs = {peer.address}/32",
            f"Endpoint = {host}:{peer.port}",
            f"PersistentKeepalive = {_KEEPALIVE_S}",
        ]

    return "\n".join(lines) + "\n"


def missing_requirement() -> str:
    """Why this node cannot connect kernels over several nodes; empty if it can. Blocks."""
    if os.geteuid() != 0:
        return "the agent does not run as root"
    if missing := [program for program in _PROGRAMS if shutil.which(program) is None]:
        return f"{', '.join(missing)} not installed"

    # Several containers are checked at the same time.
    probe = f"mwp{os.getpid() % 10**6}x{next(_probes) % 10**5}"
    if _try("ip", "link", "add", probe, "type", "wireguard") == "":
        _try("ip", "link", "delete", probe)
        return ""
    if shutil.which(_USERSPACE) is None:
        return f"the kernel of the node has no WireGuard, and {_USERSPACE} is not installed"

    return "" if Path("/dev/net/tun").exists() else f"{_USERSPACE} requires /dev/net/tun"


async def check(launch: Launch) -> dict[str, str]:
    """Check an overlay. Returns the IP addresses of the peers' nodes by hostname; empty for a
    kernel without an overlay. Raises ``CreateFailed`` before anything is created."""
    if launch.overlay is None:
        return {}
    return await asyncio.to_thread(_check, launch.overlay)


def check_now(launch: Launch) -> dict[str, str]:
    """The blocking implementation of ``check``."""
    return _check(launch.overlay) if launch.overlay is not None else {}


def _check(overlay: Overlay) -> dict[str, str]:
    if reason := missing_requirement():
        raise _failed(
            f"kernels on this node cannot join a cluster on several nodes: {reason}",
            "use --cluster-mode single-node; or there: apt install wireguard-tools wireguard-go "
            "iproute2, "
            "and run the agent as root",
        )

    endpoints = resolve_hosts({peer.hostname: peer.endpoint for peer in overlay.peers})
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as taken:
                if family is socket.AF_INET6:
                    taken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                taken.bind(("", overlay.port))
        except OSError as error:
            if error.errno in _NO_SUCH_FAMILY:
                continue

            raise _failed(
                f"UDP port {overlay.port} of this node, for the network of the cluster: {error}",
                "start it again: each attempt uses other ports",
            ) from None

    return endpoints


def attach(launch: Launch, endpoints: dict[str, str], namespace: str) -> None:
    """Create a kernel's interface. ``namespace``: the file of its network namespace. Blocks. Raises
    ``CreateFailed``."""
    if launch.overlay is not None:
        _attach(launch.kernel_id, launch.overlay, endpoints, namespace)


def _attach(kernel_id: str, overlay: Overlay, endpoints: dict[str, str], namespace: str) -> None:
    if not Path(namespace).exists():
        raise _failed(
            f"the agent does not see {namespace}, the network namespace of its kernel",
            "run the agent on the node itself, not in a container",
        )

    # Interface names have at most 15 characters.
    name = f"mw{sha256(kernel_id.encode()).hexdigest()[:12]}"
    inside = ("nsenter", f"--net={namespace}", "ip")
    _add(name)
    problem = _try(
        "wg", "setconf", name, "/dev/stdin", text=configuration(overlay, endpoints)
    ) or _try("ip", "link", "set", name, "netns", namespace, "name", OVERLAY_INTERFACE)
    if problem:
        _try("ip", "link", "delete", name)
        raise _failed(f"the network of the cluster cannot be set up: {problem}")

    problem = _try(
        *inside, "address", "add", f"{overlay.address}/{_PREFIX}", "dev", OVERLAY_INTERFACE
    ) or _try(*inside, "link", "set", OVERLAY_INTERFACE, "mtu", _MTU, "up")
    if problem:
        raise _failed(f"the network of the cluster cannot be set up: {problem}")


def _add(name: str) -> None:
    if problem := _try("ip", "link", "add", name, "type", "wireguard"):
        problem = _try(_USERSPACE, name) and problem
        if problem:
            raise _failed(f"the network of the cluster cannot be set up: {problem}")


def _try(*argv: str, text: str = "") -> str:
    """Run a program. Returns its error message, or "" if it succeeds."""
    try:
        done = subprocess.run(
            argv,
            input=text,
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
            # wireguard-go refuses to start without this. With a log level, it would keep our pipes
            # open.
            env=os.environ | {"WG_I_PREFER_BUGGY_USERSPACE_TO_POLISHED_KMOD": "1", "LOG_LEVEL": ""},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)

    return (
        ""
        if done.returncode == 0
        else f"{' '.join(argv[:4])}: {done.stderr.strip() or done.returncode}"
    )


def _failed(message: str, next_step: str = "") -> CreateFailed:
    return CreateFailed(message, reason=Reason.NO_NETWORK, clean=True, next_step=next_step)
