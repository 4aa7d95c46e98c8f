-- A stop ($1) is carried out, unless it was asked for again since ($2: when).
DELETE FROM session_stops WHERE id = $1 AND asked_at = $2
