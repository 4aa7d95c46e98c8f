-- The managers, oldest first, each with the agents that are connected to it.
SELECT m.id, m.link, array(
    SELECT a.id FROM agents a
    WHERE a.manager = m.id AND a.detached_stream IS DISTINCT FROM a.stream ORDER BY 1) AS agents
FROM managers m ORDER BY m.started_at, m.id
