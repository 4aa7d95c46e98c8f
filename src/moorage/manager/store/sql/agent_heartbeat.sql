-- Record heartbeats without changes ($1, with their incarnations $2 and streams $3). A silent agent becomes ALIVE again.
-- No row for an agent that was forgotten, or has a newer stream.
WITH locked AS (
    SELECT a.id, a.status AS old_status
    FROM agents a JOIN unnest($1::text[], $2::text[], $3::bigint[]) AS i(id, incarnation, stream) ON a.id = i.id
    WHERE a.incarnation = i.incarnation AND a.stream = i.stream ORDER BY a.id FOR NO KEY UPDATE OF a
)
UPDATE agents a SET last_seen = now(), status = 'ALIVE' FROM locked l WHERE a.id = l.id RETURNING a.id, l.old_status
