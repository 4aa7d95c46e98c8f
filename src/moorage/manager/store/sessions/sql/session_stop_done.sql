-- Record that a stop ($1) is completed, unless it was requested again since ($2: when).
DELETE FROM session_stops WHERE id = $1 AND asked_at = $2
