SELECT at, event, actor, detail FROM agent_history WHERE agent_id = $1
