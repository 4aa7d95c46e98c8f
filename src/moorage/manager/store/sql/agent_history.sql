-- Newest first.
SELECT at, event, actor, detail FROM agent_history WHERE agent_id = $1 ORDER BY at DESC LIMIT $2
