"""Calls about users, projects and their members."""

from __future__ import annotations

from moorage.common.views.audit import AuditEntry
from moorage.common.views.console import NewPassword, PasswordChange, SignedOut, WhoAmI
from moorage.common.views.identity import (
    Membership,
    MemberView,
    ProjectPatch,
    ProjectSpec,
    ProjectView,
    UserPatch,
    UserSpec,
    UserSubject,
    UserView,
)
from moorage.common.views.resources import Page
from moorage.sdk.transport import Transport, etag, segment


class IdentityCalls(Transport):
    async def create_user(self, spec: UserSpec) -> UserView:
        return await self.call(UserView, "POST", "/v1/users", body=spec)

    async def list_users(self) -> list[UserView]:
        return await self.every(Page[UserView], "/v1/users")

    async def get_user(self, name: str) -> UserView:
        return await self.call(UserView, "GET", f"/v1/users/{segment(name)}")

    async def update_user(
        self, name: str, patch: UserPatch, *, version: int | None = None
    ) -> UserView:
        """Replaces the fields that ``patch`` sets. ``version``: refuse (412) if it has another
        one."""
        path = f"/v1/users/{segment(name)}"
        return await self.call(UserView, "PATCH", path, body=patch, if_match=etag(version))

    async def who_am_i(self) -> WhoAmI:
        return await self.call(WhoAmI, "GET", "/v1/session")

    async def set_password(self, user: str, password: str) -> UserView:
        """Ends the user's console sessions."""
        path = f"/v1/users/{segment(user)}/password"
        return await self.call(UserView, "PUT", path, body=NewPassword(password=password))

    async def link_user(self, user: str, subject: str) -> UserView:
        """Let somebody at the OpenID provider be the user."""
        path = f"/v1/users/{segment(user)}/subject"
        return await self.call(UserView, "PUT", path, body=UserSubject(subject=subject))

    async def unlink_user(self, user: str) -> UserView:
        """Ends the console sessions that were opened at the OpenID provider."""
        return await self.call(UserView, "DELETE", f"/v1/users/{segment(user)}/subject")

    async def change_password(self, current: str, new: str) -> SignedOut:
        """Of the key's user. Ends its console sessions."""
        change = PasswordChange(current=current, password=new)
        return await self.call(SignedOut, "PUT", "/v1/session/password", body=change)

    async def delete_password(self, user: str) -> UserView:
        return await self.call(UserView, "DELETE", f"/v1/users/{segment(user)}/password")

    async def list_audit(
        self, *, cursor: str | None = None, **filters: str | None
    ) -> Page[AuditEntry]:
        """Administrative writes, newest first. ``filters``: actor, user, action, resource, name,
        since, until, limit."""
        return await self.call(
            Page[AuditEntry], "GET", "/v1/audit", query={"cursor": cursor, **filters}
        )

    async def create_project(self, spec: ProjectSpec) -> ProjectView:
        return await self.call(ProjectView, "POST", "/v1/projects", body=spec)

    async def list_projects(self) -> list[ProjectView]:
        return await self.every(Page[ProjectView], "/v1/projects")

    async def get_project(self, name: str) -> ProjectView:
        return await self.call(ProjectView, "GET", f"/v1/projects/{segment(name)}")

    async def update_project(
        self, name: str, patch: ProjectPatch, *, version: int | None = None
    ) -> ProjectView:
        """Replaces the fields that ``patch`` sets. ``version``: refuse (412) if it has another
        one."""
        path = f"/v1/projects/{segment(name)}"
        return await self.call(ProjectView, "PATCH", path, body=patch, if_match=etag(version))

    async def list_members(self, project: str) -> list[MemberView]:
        return await self.every(Page[MemberView], f"/v1/projects/{segment(project)}/members")

    async def set_member(self, project: str, user: str, membership: Membership) -> MemberView:
        path = f"/v1/projects/{segment(project)}/members/{segment(user)}"
        return await self.call(MemberView, "PUT", path, body=membership)

    async def remove_member(self, project: str, user: str) -> MemberView:
        path = f"/v1/projects/{segment(project)}/members/{segment(user)}"
        return await self.call(MemberView, "DELETE", path)
