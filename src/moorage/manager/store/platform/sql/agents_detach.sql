-- The streams $2 of agents $1 to manager $3 have ended. An agent that has a newer stream is
-- connected. Returns the agents that are now connected to no manager.
WITH locked AS (
    SELECT a.id FROM agents a JOIN unnest($1::text[], $2::bigint[]) AS i(id, stream) ON a.id = i.id
    WHERE a.stream = i.stream AND a.manager = $3 ORDER BY a.id FOR NO KEY UPDATE OF a
)
UPDATE agents a SET detached_stream = a.stream FROM locked l WHERE a.id = l.id RETURNING a.id
