"""Calls about the public keys by which users log in over SSH."""

from __future__ import annotations

from moorage.common.views.resources import Page
from moorage.common.views.ssh_keys import SshKeyChallenge, SshKeySpec, SshKeyView
from moorage.sdk.transport import Transport, segment


class SshKeyCalls(Transport):
    async def ssh_key_challenge(self) -> SshKeyChallenge:
        """What to sign with the private key, to register the public one."""
        return await self.call(SshKeyChallenge, "GET", "/v1/ssh-keys/challenge")

    async def add_ssh_key(self, spec: SshKeySpec) -> SshKeyView:
        """A key that an API key registers acts as that one and ends with it. ``spec`` has a
        challenge and its signature."""
        return await self.call(SshKeyView, "POST", "/v1/ssh-keys", body=spec)

    async def list_ssh_keys(self) -> list[SshKeyView]:
        return await self.every(Page[SshKeyView], "/v1/ssh-keys")

    async def remove_ssh_key(self, ref: str) -> SshKeyView:
        """``ref``: its name or its fingerprint. Open connections of the key are closed."""
        return await self.call(SshKeyView, "DELETE", f"/v1/ssh-keys/{segment(ref)}")
