"""Users, their passwords and their accounts at the OpenID provider."""

from __future__ import annotations

from moorage.common.views.console import NewPassword, PasswordChange, SignedOut, WhoAmI
from moorage.common.views.identity import UserPatch, UserSpec, UserSubject, UserView
from moorage.sdk.paged_list import PagedList
from moorage.sdk.resource import Resource, SyncResource, blocking, listed
from moorage.sdk.transport import etag, segment


class Users(Resource):
    """Users, their passwords and their accounts at the OpenID provider."""

    async def create(self, spec: UserSpec) -> UserView:
        return await self._call(UserView, "POST", "/v1/users", body=spec)

    def list(self, *, archived: bool = False) -> PagedList[UserView]:
        """Users. ``archived``: include those that are archived."""
        return self._list(UserView, "/v1/users", {"archived": "true"} if archived else None)

    async def get(self, name: str) -> UserView:
        return await self._call(UserView, "GET", f"/v1/users/{segment(name)}")

    async def update(self, name: str, patch: UserPatch, *, version: int | None = None) -> UserView:
        """Replace the fields set in ``patch``. ``version``: refuse (412) if the user has a
        different version."""
        path = f"/v1/users/{segment(name)}"
        return await self._call(UserView, "PATCH", path, body=patch, if_match=etag(version))

    async def archive(self, name: str) -> UserView:
        """Archive a user without live sessions and endpoints. Its keys are refused from then
        on."""
        return await self._call(UserView, "POST", f"/v1/users/{segment(name)}/archive")

    async def restore(self, name: str) -> UserView:
        """Restore an archived user."""
        return await self._call(UserView, "POST", f"/v1/users/{segment(name)}/restore")

    async def delete(self, name: str) -> UserView:
        """Delete a user that nothing names."""
        return await self._call(UserView, "DELETE", f"/v1/users/{segment(name)}")

    async def me(self) -> WhoAmI:
        return await self._call(WhoAmI, "GET", "/v1/session")

    async def set_password(self, user: str, password: str) -> UserView:
        """Set the user's password. The user's console sessions end."""
        path = f"/v1/users/{segment(user)}/password"
        return await self._call(UserView, "PUT", path, body=NewPassword(password=password))

    async def delete_password(self, user: str) -> UserView:
        return await self._call(UserView, "DELETE", f"/v1/users/{segment(user)}/password")

    async def change_password(self, current: str, new: str) -> SignedOut:
        """Change the password of the key's user. Ends its console sessions."""
        change = PasswordChange(current=current, password=new)
        return await self._call(SignedOut, "PUT", "/v1/session/password", body=change)

    async def link(self, user: str, subject: str) -> UserView:
        """Link an account at the OpenID provider to the user."""
        path = f"/v1/users/{segment(user)}/subject"
        return await self._call(UserView, "PUT", path, body=UserSubject(subject=subject))

    async def unlink(self, user: str) -> UserView:
        """Unlink the account. Console sessions opened through the OpenID provider end."""
        return await self._call(UserView, "DELETE", f"/v1/users/{segment(user)}/subject")


class SyncUsers(SyncResource[Users]):
    """``Users`` without asyncio."""

    create = blocking(Users.create)
    list = listed(Users.list)
    get = blocking(Users.get)
    update = blocking(Users.update)
    archive = blocking(Users.archive)
    restore = blocking(Users.restore)
    delete = blocking(Users.delete)
    me = blocking(Users.me)
    set_password = blocking(Users.set_password)
    delete_password = blocking(Users.delete_password)
    change_password = blocking(Users.change_password)
    link = blocking(Users.link)
    unlink = blocking(Users.unlink)
