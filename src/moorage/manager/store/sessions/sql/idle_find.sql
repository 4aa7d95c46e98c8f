-- Observations of session $1 in its current attempt. $2: only in these projects.
SELECT i.* FROM session_idle i JOIN sessions s ON s.id = i.session_id AND s.attempt = i.attempt
WHERE i.session_id = $1 AND ($2::text[] IS NULL OR s.project = ANY ($2))
