-- Record heartbeats without changes ($1, with their incarnations $2 and streams $3) at manager $4.
-- An agent that was silent is ALIVE again; if another manager applied an agent's last report, or
-- the agent was detached, its report must be applied in full. No row for an agent that was
-- forgotten, was restored from a backup, or has a newer stream.
WITH locked AS (
    SELECT a.id,
           a.status <> 'ALIVE' OR a.detached_stream IS NOT NULL
             OR a.manager IS DISTINCT FROM $4 AS was_away
    FROM agents a
    JOIN unnest($1::text[], $2::text[], $3::bigint[]) AS i(id, incarnation, stream) ON a.id = i.id
    WHERE a.incarnation = i.incarnation AND a.stream = i.stream AND a.restored_at IS NULL
    ORDER BY a.id FOR NO KEY UPDATE OF a
)
UPDATE agents a SET last_seen = now(), status = 'ALIVE'
FROM locked l WHERE a.id = l.id RETURNING a.id, l.was_away
