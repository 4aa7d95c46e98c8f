"""Loopback rules for sandboxed kernels, as an nftables table.

Kernels share the network of the node, so that proxies reach them. But what listens on the node's own
addresses trusts the node: databases, metrics, other kernels. So a connection from a kernel's uid to an
address of the node is cut unless the server has the same uid, or listens on one of a few ports.

The uid of a server is known once it answers. Connection tracking keeps the uid of the client, and the answer
passes if both are equal. A refused connection therefore times out. The rules are the same for every session
and stay in place when the agent ends.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence

from moorage.agent.runtimes.base import RuntimeFailed

_SECONDS = 30


def rules(table: str, uids: range, ports: Sequence[int]) -> str:
    """``ports``: those that kernels may reach."""
    marks = ", ".join(f"{uid} : {uid}" for uid in uids)
    same = ", ".join(f"{uid} . {uid}" for uid in uids)
    kernels = f"{uids[0]}-{uids[-1]}"
    allowed = f"th sport {{ {', '.join(map(str, ports))} }} accept" if ports else ""
    return f"""
table inet {table}
delete table inet {table}
table inet {table} {{
  map marks {{ typeof meta skuid : ct mark; elements = {{ {marks} }} }}
  set same {{ typeof meta skuid . ct mark; elements = {{ {same} }} }}
  chain output {{
    type filter hook output priority filter; policy accept;
    oif "lo" meta skuid {kernels} ct direction original ct state new ct mark set meta skuid map @marks
    oif "lo" ct direction reply ct mark {kernels} jump answers
  }}
  chain answers {{
    {allowed}
    meta skuid . ct mark @same accept
    meta skuid 0-4294967294 drop
  }}
}}
"""


class LoopbackRules:
    """``uids``: of all kernels of the node. All methods block."""

    def __init__(self, uids: range, ports: Sequence[int]) -> None:
        self._table = f"moorage_{uids[0]}"
        self._text = rules(self._table, uids, ports)

    def load(self) -> None:
        """Replace the rules. Raises ``RuntimeFailed``."""
        result = _nft(["-f", "-"], self._text)
        if result.returncode:
            raise RuntimeFailed(
                f"nftables refused the rules for kernels: {result.stderr.strip()[-300:]}",
                next_step="`nft list ruleset` must work as the agent's user: it needs nftables in Linux, "
                "with connection tracking",
            )

    def ensure(self) -> None:
        """Load the rules if another program has removed them. Raises ``RuntimeFailed``."""
        if _nft(["list", "chain", "inet", self._table, "answers"]).returncode:
            self.load()


def _nft(arguments: Sequence[str], text: str = "") -> subprocess.CompletedProcess[str]:
    program = shutil.which("nft") or shutil.which("nft", path="/usr/sbin:/sbin")
    if program is None:
        raise RuntimeFailed(
            "there is no nft, which closes the node's ports to kernels",
            next_step="install nftables: apt install nftables",
        )
    try:
        return subprocess.run(
            [program, *arguments], input=text, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeFailed(f"cannot run nft: {error}", next_step="check nftables on that node") from None
