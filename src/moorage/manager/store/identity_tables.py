"""Tables of identities: API keys, secrets, and the peers on the links."""

from __future__ import annotations

from sqlalchemy import BigInteger, Integer, LargeBinary, Text

from moorage.manager.store.schema import ID, TIME, table

api_keys = table(
    "api_keys",
    ("id",),
    {
        "id": ID,
        "name": Text(),
        "role": Text(),
        "owner": Text(),
        "project": Text(),
        "prefix": Text(),
        "sha256": Text(),
        "created_at": TIME,
        "expires_at": [TIME],
        "revoked_at": [TIME],
        "last_used_at": [TIME],
        "created_by": Text(),
        "revoked_by": Text(),
    },
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
    "link_authority", ("name",), {"name": Text(), "certificate": Text(), "key": Text(), "created_at": TIME}
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
    },
)
