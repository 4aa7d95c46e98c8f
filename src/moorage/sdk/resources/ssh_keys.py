"""Public keys by which users log in over SSH."""

from __future__ import annotations

from moorage.common.views.ssh_keys import SshKeyChallenge, SshKeySpec, SshKeyView
from moorage.sdk.paged_list import PagedList
from moorage.sdk.resource import Resource, SyncResource, blocking, listed
from moorage.sdk.transport import segment


class SshKeys(Resource):
    """Public keys by which users log in over SSH."""

    async def challenge(self) -> SshKeyChallenge:
        """The challenge to sign with the private key, to register the public one."""
        return await self._call(SshKeyChallenge, "GET", "/v1/ssh-keys/challenge")

    async def create(self, spec: SshKeySpec) -> SshKeyView:
        """A key that an API key registers acts as that one and ends with it. ``spec`` has a
        challenge and its signature."""
        return await self._call(SshKeyView, "POST", "/v1/ssh-keys", body=spec)

    def list(self) -> PagedList[SshKeyView]:
        return self._list(SshKeyView, "/v1/ssh-keys")

    async def delete(self, ref: str) -> SshKeyView:
        """``ref``: its name or its fingerprint. Open connections of the key are closed."""
        return await self._call(SshKeyView, "DELETE", f"/v1/ssh-keys/{segment(ref)}")


class SyncSshKeys(SyncResource[SshKeys]):
    """``SshKeys`` without asyncio."""

    challenge = blocking(SshKeys.challenge)
    create = blocking(SshKeys.create)
    list = listed(SshKeys.list)
    delete = blocking(SshKeys.delete)
