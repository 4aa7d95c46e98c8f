-- Delete tokens that have been unusable for $1 days. Until then their ids show which peers joined
-- with them.
DELETE FROM join_tokens WHERE id IN (
    SELECT id FROM join_tokens
    WHERE coalesce(removed_at, expires_at) < now() - make_interval(days => $1) LIMIT 1000)
RETURNING id
