-- Mark agents ($1) as SUSPECT or LOST ($3) if the leader ($5: its term) has found them silent and
-- they have not reported since ($2: the last report that the leader saw). LOST follows only
-- SUSPECT, and only if the database's clock shows the silence as well ($4: seconds). The lease is
-- locked FOR SHARE: no other manager becomes leader until this commits. Returns the marked agents.
WITH lease AS (
    SELECT FROM leases WHERE name = 'leader' AND term = $5 AND expires_at > now() FOR SHARE
), locked AS (
    SELECT a.id, i.new FROM agents a
    JOIN unnest($1::text[], $2::timestamptz[], $3::text[], $4::float8[])
        AS i(id, last_seen, new, silent_s) ON a.id = i.id
    WHERE a.last_seen = i.last_seen
      AND a.status = CASE i.new WHEN 'LOST' THEN 'SUSPECT' ELSE 'ALIVE' END
      AND (i.new <> 'LOST' OR a.last_seen <= now() - make_interval(secs => i.silent_s))
      AND EXISTS (SELECT FROM lease)
    ORDER BY a.id FOR NO KEY UPDATE OF a
)
UPDATE agents a SET status = l.new FROM locked l WHERE a.id = l.id RETURNING a.id, a.status
