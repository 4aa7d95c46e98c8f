"""Public keys with which users log in over SSH."""

from __future__ import annotations

from moorage.common.views.ssh_keys import SshKeyChallenge, SshKeySpec, SshKeyView
from moorage.sdk.paged_list import PagedList
from moorage.sdk.resource import Resource, SyncResource, blocking, listed
from moorage.sdk.transport import segment


class SshKeys(Resource):
    """Public keys with which users log in over SSH."""

    async def challenge(self) -> SshKeyChallenge:
        """Return a challenge, which must be signed with the private key to register the public
        key."""
        return await self._call(SshKeyChallenge, "GET", "/v1/ssh-keys/challenge")

    async def create(self, spec: SshKeySpec) -> SshKeyView:
        """Register a public key. A key registered with an API key has the API key's permissions and
        expires with it. ``spec`` contains a challenge and its signature."""
        return await self._call(SshKeyView, "POST", "/v1/ssh-keys", body=spec)

    def list(self) -> PagedList[SshKeyView]:
        return self._list(SshKeyView, "/v1/ssh-keys")

    async def delete(self, ref: str) -> SshKeyView:
        """Remove a key. ``ref``: its name or fingerprint. The key's open connections are closed."""
        return await self._call(SshKeyView, "DELETE", f"/v1/ssh-keys/{segment(ref)}")


class SyncSshKeys(SyncResource[SshKeys]):
    """``SshKeys`` without asyncio."""

    challenge = blocking(SshKeys.challenge)
    create = blocking(SshKeys.create)
    list = listed(SshKeys.list)
    delete = blocking(SshKeys.delete)
