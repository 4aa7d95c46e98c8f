"""Tables of identities: users, projects, API keys, secrets, and the peers on the links."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Integer, LargeBinary, Text
from sqlalchemy.dialects.postgresql import ARRAY

from moorage.manager.store.schema import ID, TIME, table

_KEY: dict[str, Any] = {"id": ID, "created_at": TIME}
_KEY |= {name: Text() for name in ("name", "role", "owner", "project", "prefix", "sha256")}
_KEY |= {"expires_at": [TIME], "revoked_at": [TIME], "last_used_at": [TIME]}
_KEY |= {"created_by": Text(), "revoked_by": Text(), "granted_role": [Text()], "previous_sha256": [Text()]}
_KEY |= {"previous_until": [TIME], "max_priority": [Integer()]}
_KEY |= {name: [ARRAY(Text())] for name in ("scopes", "models", "resource_groups")}
_KEY |= {f"{rate}_per_minute": [Integer()] for rate in ("requests", "tokens")}
api_keys = table("api_keys", ("id",), _KEY | {"concurrent_requests": [Integer()]})

_ACCOUNT: dict[str, Any] = {"id": ID, "name": Text(), "status": Text(), "created_at": TIME}
_ACCOUNT |= {"created_by": Text()}
users = table("users", ("name",), _ACCOUNT | {"email": Text(), "platform_role": [Text()]})

projects = table(
    "projects", ("name",), _ACCOUNT | {"max_priority": [Integer()], "resource_groups": [ARRAY(Text())]}
)

memberships = table(
    "memberships",
    ("project", "user_name"),
    {"project": Text(), "user_name": Text(), "role": Text(), "changed_at": TIME, "changed_by": Text()},
)

secrets = table(
    "secrets",
    ("project", "name"),
    {
        "project": Text(),
        "name": Text(),
        "version": BigInteger(),
        "key_id": Text(),
        "sealed": LargeBinary(),
        "created_at": TIME,
        "created_by": Text(),
        "changed_at": TIME,
        "changed_by": Text(),
        "deleted_at": [TIME],
    },
)

link_authority = table(
    "link_authority",
    ("name",),
    {
        "name": Text(),
        "certificate": Text(),
        "key": Text(),
        "created_at": TIME,
        "next_certificate": [Text()],
        "next_key": [Text()],
        "retiring_certificate": [Text()],
        "rotated_at": [TIME],
        "rotated_by": [Text()],
    },
)

join_tokens = table(
    "join_tokens",
    ("id",),
    {
        "id": ID,
        "verifier": Text(),
        "kind": Text(),
        "resource_group": [Text()],
        "uses": Integer(),
        "used": Integer(),
        "expires_at": TIME,
        "created_at": TIME,
        "created_by": Text(),
        "removed_at": [TIME],
        "removed_by": Text(),
    },
)

link_peers = table(
    "link_peers",
    ("id",),
    {
        "id": ID,
        "kind": Text(),
        "name": Text(),
        "resource_group": [Text()],
        "token_id": [ID],
        "public_key": Text(),
        "joined_at": TIME,
        "certificate_until": TIME,
        "revoked_at": [TIME],
        "revoked_by": Text(),
        "renewed_from": [Text()],
        "renewed_at": [TIME],
        "retired_keys": ARRAY(Text()),
        "trusted_authorities": ARRAY(Text()),
        "issuer": [Text()],
    },
)
