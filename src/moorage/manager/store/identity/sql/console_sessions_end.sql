-- End console session $1, or all of user $2.
UPDATE console_sessions SET ended_at = now()
WHERE (id = $1::uuid OR user_name = $2) AND ended_at IS NULL AND expires_at > now()
  AND last_seen_at > now() - make_interval(secs => idle_s) RETURNING id
