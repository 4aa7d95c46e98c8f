-- Tokens by which nothing can join any more, a month after: who joined by them is told by their id until then.
DELETE FROM join_tokens WHERE id IN (
    SELECT id FROM join_tokens
    WHERE coalesce(removed_at, expires_at) < now() - make_interval(days => $1) LIMIT 1000)
RETURNING id
