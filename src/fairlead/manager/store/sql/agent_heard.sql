-- Heartbeats without news ($1, with their incarnations $2). No row for an agent that is silent, gone or another
-- incarnation by now: that one is looked at in full.
WITH locked AS (
    SELECT a.id FROM agents a JOIN unnest($1::text[], $2::text[]) AS i(id, incarnation) ON a.id = i.id
    WHERE a.incarnation = i.incarnation AND a.status = 'ALIVE' ORDER BY a.id FOR NO KEY UPDATE OF a
)
UPDATE agents a SET last_seen = now() FROM locked l WHERE a.id = l.id RETURNING a.id
