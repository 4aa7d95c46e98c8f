-- Agents of a group that report why they accept no new work. At most $2.
SELECT id, not_ready FROM agents
WHERE resource_group = $1 AND NOT ready AND not_ready <> '' AND status = 'ALIVE'
ORDER BY id LIMIT $2
