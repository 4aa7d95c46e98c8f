-- Create an access token to an app of a live session ($2), and delete that session's tokens that
-- expired a week ago. $10, $11: its user, and the API key that it was made with, if any.
-- No row: the session has ended or does not exist.
WITH old AS (
    DELETE FROM access_tokens WHERE session_id = $2::uuid AND expires_at < now() - interval '7 days'
)
INSERT INTO access_tokens (id, session_id, app, prefix, sha256, created_by, expires_at, user_name,
                           key_id)
SELECT $1::uuid, s.id, $3, $4, $5, $6, now() + make_interval(secs => $7), $10, $11::uuid
FROM sessions s WHERE s.id = $2::uuid AND s.status NOT IN (:TERMINAL)
  AND ($8::text[] IS NULL OR s.project = ANY ($8)) AND ($9::text IS NULL OR s.owner = $9)
RETURNING id, session_id, app, prefix, created_at, created_by, expires_at
