SELECT revision, at, event, from_status, to_status, reason, actor, detail
FROM session_history WHERE session_id = $1
