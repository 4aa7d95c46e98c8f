-- Delete the password of user $1 and end the console sessions that were opened with it. No row:
-- there was none.
WITH removed AS (
    DELETE FROM user_passwords WHERE user_name = $1 RETURNING user_name
), ended AS (
    UPDATE console_sessions c SET ended_at = now() FROM removed r
    WHERE c.user_name = r.user_name AND c.ended_at IS NULL AND c.key_id IS NULL AND NOT c.by_oidc
)
SELECT user_name FROM removed
