"""Tables of identities: users, projects, API keys, secrets, and the peers on the links."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Integer, LargeBinary, Text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from moorage.manager.store.schema.base import ID, TIME, table

users = table(
    "users",
    ("name",),
    {
        "id": ID,
        "name": Text(),
        "email": Text(),
        "status": Text(),
        "platform_role": [Text()],
        "created_at": TIME,
        "created_by": Text(),
        "version": BigInteger(),
    },
)

projects = table(
    "projects",
    ("name",),
    {
        "id": ID,
        "name": Text(),
        "status": Text(),
        "max_priority": [Integer()],
        "resource_groups": [ARRAY(Text())],
        "requests_per_minute": [Integer()],
        "tokens_per_minute": [Integer()],
        "concurrent_requests": [Integer()],
        "reuse": [Text()],
        "created_at": TIME,
        "created_by": Text(),
        "version": BigInteger(),
    },
)

memberships = table(
    "memberships",
    ("project", "user_name"),
    {
        "project": Text(),
        "user_name": Text(),
        "role": Text(),
        "changed_at": TIME,
        "changed_by": Text(),
    },
)

# ``role`` is what the previous release reads; ``granted_role`` is the role with which the key was
# created.
api_keys = table(
    "api_keys",
    ("id",),
    {
        "id": ID,
        "name": Text(),
        "role": Text(),
        "granted_role": [Text()],
        "owner": Text(),
        "project": Text(),
        "prefix": Text(),
        "sha256": Text(),
        "previous_sha256": [Text()],
        "previous_until": [TIME],
        "scopes": [ARRAY(Text())],
        "models": [ARRAY(Text())],
        "resource_groups": [ARRAY(Text())],
        "max_priority": [Integer()],
        "kept_priority": [Integer()],
        "requests_per_minute": [Integer()],
        "tokens_per_minute": [Integer()],
        "concurrent_requests": [Integer()],
        "created_at": TIME,
        "created_by": Text(),
        "expires_at": [TIME],
        "last_used_at": [TIME],
        "revoked_at": [TIME],
        "revoked_by": Text(),
        "version": BigInteger(),
    },
)

user_ssh_keys = table(
    "user_ssh_keys",
    ("id",),
    {
        "id": ID,
        "user_name": Text(),
        "name": Text(),
        "key_id": [ID],
        "fingerprint": Text(),
        "public_key": Text(),
        "created_at": TIME,
        "created_by": Text(),
        "last_used_at": [TIME],
        "proved": Boolean(),
    },
)

user_passwords = table(
    "user_passwords",
    ("user_name",),
    {"user_name": Text(), "hash": Text(), "changed_at": TIME, "changed_by": Text()},
)

sign_in_attempts = table(
    "sign_in_attempts",
    ("name",),
    {"name": Text(), "failures": Integer(), "at": TIME, "locked_until": [TIME]},
)

console_sessions = table(
    "console_sessions",
    ("id",),
    {
        "id": ID,
        "user_name": Text(),
        "key_id": [ID],
        "project": Text(),
        "sha256": Text(),
        "from_address": Text(),
        "created_at": TIME,
        "expires_at": TIME,
        "idle_s": Integer(),
        "last_seen_at": TIME,
        "ended_at": [TIME],
        "by_oidc": Boolean(),
    },
)

oidc_identities = table(
    "oidc_identities",
    ("user_name",),
    {
        "user_name": Text(),
        "issuer": Text(),
        "subject": Text(),
        "granted_role": [Text()],
        "granted_projects": JSONB(),
        "created_at": TIME,
        "last_sign_in_at": [TIME],
    },
)

audit_log = table(
    "audit_log",
    ("id",),
    {
        "id": BigInteger(),
        "at": TIME,
        "actor": Text(),
        "user_name": Text(),
        "project": Text(),
        "from_address": Text(),
        "request_id": Text(),
        "action": Text(),
        "resource": Text(),
        "name": Text(),
        "status": [Integer()],
        "code": Text(),
        "before": [JSONB()],
        "after": [JSONB()],
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
