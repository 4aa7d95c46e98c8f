"""OpenSSH's programs against a proxy's SSH address, with their own keys."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.addresses import free_port
from tests.e2e.harness import Platform, until

SMALL = ("--resources", "cpu=0.1", "--resources", "mem=256MiB")


class SshPlatform(Platform):
    """``moorage up`` with SSH on its proxy."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.ssh_port = free_port()
        self.env["MOORAGE_PROXY__SSH_LISTEN"] = f"127.0.0.1:{self.ssh_port}"
        # Each connection may reach a different worker: keys, limits and the host key belong to the
        # proxy.
        self.env["MOORAGE_PROXY__WORKERS"] = "2"
        self.env["MOORAGE_PROXY__SSH_MAX_LOGINS_PER_ADDRESS"] = "5"

    def new_key(self, name: str, *, registered: bool = True) -> Path:
        """The private key file for a new key."""
        file = self.home / f"{name}.key"
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(file)]
        subprocess.run(command, check=True)
        if registered:
            added = self.run("keys", "add-ssh", f"{file}.pub")
            assert added.returncode == 0, added.stderr
        return file

    def options(self, key: Path) -> list[str]:
        pairs = {
            "Port": self.ssh_port,
            "IdentityFile": key,
            "IdentitiesOnly": "yes",
            "BatchMode": "yes",
            "UserKnownHostsFile": self.home / "known_hosts",
            "StrictHostKeyChecking": "accept-new",
            "LogLevel": "ERROR",
        }
        return [part for name, value in pairs.items() for part in ("-o", f"{name}={value}")]

    def openssh(self, program: str, key: Path, *arguments: str | Path) -> list[str]:
        return [program, "-F", "none", *self.options(key), *map(str, arguments)]

    async def ssh(
        self, key: Path, *arguments: str | Path, stdin: bytes = b"", program: str = "ssh"
    ) -> subprocess.CompletedProcess[bytes]:
        return await asyncio.to_thread(
            subprocess.run,
            self.openssh(program, key, *arguments),
            env=self.env,
            input=stdin,
            capture_output=True,
            timeout=90,
            check=False,
        )

    async def wait_for_ssh(self) -> None:
        await self.wait_until_ready()
        await until("the proxy accepts SSH", self.greets)

    async def greets(self) -> bool:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.ssh_port)
            greeting = await asyncio.wait_for(reader.readline(), 1)
        except (OSError, TimeoutError):
            return False
        writer.close()
        return greeting.startswith(b"SSH-2.0-")


@contextmanager
def running_platform(reachable_dir: Path) -> Iterator[SshPlatform]:
    home = Path(tempfile.mkdtemp(prefix="ssh-", dir=reachable_dir))
    home.chmod(0o711)
    platform = SshPlatform(home)
    platform.start("up")
    try:
        yield platform
    finally:
        platform.close()


async def started(platform: Platform, name: str, *options: str) -> None:
    done = await asyncio.to_thread(platform.run, "start", "--name", name, *SMALL, *options)
    assert done.returncode == 0, done.stderr
