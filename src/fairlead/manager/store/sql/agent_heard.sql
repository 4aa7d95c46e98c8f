-- Heartbeats without news ($1, with their incarnations $2): a silent agent is back. No row for one that is gone or
-- another incarnation by now.
WITH locked AS (
    SELECT a.id, a.status AS was FROM agents a JOIN unnest($1::text[], $2::text[]) AS i(id, incarnation) ON a.id = i.id
    WHERE a.incarnation = i.incarnation ORDER BY a.id FOR NO KEY UPDATE OF a
)
UPDATE agents a SET last_seen = now(), status = 'ALIVE' FROM locked l WHERE a.id = l.id RETURNING a.id, l.was
