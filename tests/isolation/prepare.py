"""Preparation for the isolation tests: ``python -m tests.isolation.prepare``.

Installs nftables, iproute2 and WireGuard on Debian; starts nothing. Exits with 1 and prints the
reason if this machine cannot isolate process kernels.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from moorage.agent.runtimes import ProcessRuntime
from moorage.agent.state.logs import LogStore
from tests.containers.prepare import install


async def missing_requirement() -> str:
    """Why an agent here cannot isolate process kernels, or "" if it can."""
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        runtime = ProcessRuntime(
            state, LogStore(state / "logs"), log_max_bytes=10_000, log_keep_files=1
        )
        try:
            return (await runtime.probe()).detail
        finally:
            runtime.close()


if __name__ == "__main__":
    packages = {"nftables": "/usr/sbin/nft", "iproute2": "ip", "wireguard-tools": "wg"}
    reason = install(packages | {"wireguard-go": "wireguard-go"}) or asyncio.run(
        missing_requirement()
    )
    print(reason)
    sys.exit(1 if reason else 0)
