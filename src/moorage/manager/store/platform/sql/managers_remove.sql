-- Remove managers ($1) that have stopped, and detach the agents that were connected to them.
-- Returns these agents.
WITH removed AS (
    DELETE FROM managers WHERE id = ANY ($1::uuid[])
), locked AS (
    SELECT id FROM agents
    WHERE manager = ANY ($1::uuid[]) AND detached_stream IS DISTINCT FROM stream
    ORDER BY id FOR NO KEY UPDATE
)
UPDATE agents a SET detached_stream = a.stream FROM locked l WHERE a.id = l.id RETURNING a.id
