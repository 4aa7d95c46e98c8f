-- Set the password of user $1 to hash $2 and end the user's console sessions except $4; returns how
-- many were open. No row: there is no such user.
WITH stored AS (
    INSERT INTO user_passwords AS p (user_name, hash, changed_by) SELECT u.name, $2, $3 FROM users u
    WHERE u.name = $1
    ON CONFLICT (user_name)
    DO UPDATE SET hash = excluded.hash, changed_at = now(), changed_by = excluded.changed_by
    RETURNING user_name
), ended AS (
    UPDATE console_sessions c SET ended_at = now() FROM stored s
    WHERE c.user_name = s.user_name AND c.ended_at IS NULL AND c.id IS DISTINCT FROM $4::uuid
    RETURNING c.expires_at > now()
      AND c.last_seen_at > now() - make_interval(secs => c.idle_s) AS was_open
), forgiven AS (
    DELETE FROM sign_in_attempts WHERE name = $1
)
SELECT user_name, (SELECT count(*) FROM ended WHERE was_open) AS ended FROM stored
