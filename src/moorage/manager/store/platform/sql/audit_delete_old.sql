-- Delete up to $2 entries older than $1 seconds, the oldest first (index audit_log_by_time).
DELETE FROM audit_log WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM audit_log WHERE at < now() - make_interval(secs => $1) ORDER BY at LIMIT $2))
RETURNING 1
