"""Roles of users and keys, and scopes of keys."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal


class Role(StrEnum):
    """A key's role, in its project (the first three) or on the whole platform."""

    VIEWER = "viewer"
    MEMBER = "member"
    PROJECT_ADMIN = "project-admin"
    AUDITOR = "auditor"
    ADMIN = "admin"


PLATFORM_ROLES = frozenset({Role.AUDITOR, Role.ADMIN})

MemberRole = Literal["viewer", "member", "admin"]
PlatformRole = Literal["auditor", "admin"]

# What a key may be used for: reading and writing sessions, endpoints and workspaces; requests to
# models; and the administration that its role permits.
KeyScope = Literal["sessions:read", "sessions:write", "models:use", "admin"]
