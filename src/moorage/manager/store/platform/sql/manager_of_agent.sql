-- The manager that agent $1 is connected to.
SELECT m.id, m.link FROM agents a JOIN managers m ON m.id = a.manager
WHERE a.id = $1 AND a.detached_stream IS DISTINCT FROM a.stream
