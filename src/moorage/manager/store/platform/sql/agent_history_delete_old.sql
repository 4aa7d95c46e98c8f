DELETE FROM agent_history WHERE at < now() - make_interval(days => $1)
