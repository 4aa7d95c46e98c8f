-- Tokens that can still be used.
SELECT id, kind, resource_group, uses, used, expires_at, created_at, created_by
FROM join_tokens WHERE removed_at IS NULL AND expires_at > now() AND used < uses
