-- Heartbeats without news ($1, with their incarnations $2 and streams $3): a silent agent is back. No row for one that
-- is gone, or heard through another stream by now.
WITH locked AS (
    SELECT a.id, a.status AS was
    FROM agents a JOIN unnest($1::text[], $2::text[], $3::bigint[]) AS i(id, incarnation, stream) ON a.id = i.id
    WHERE a.incarnation = i.incarnation AND a.stream = i.stream ORDER BY a.id FOR NO KEY UPDATE OF a
)
UPDATE agents a SET last_seen = now(), status = 'ALIVE' FROM locked l WHERE a.id = l.id RETURNING a.id, l.was
