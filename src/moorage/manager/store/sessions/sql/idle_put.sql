-- Store observations of sessions ($1 id, $2 attempt, $3 observed, $4 last traffic, $5 sightings, $6
-- warned, all of them in seconds of observation; $7 remaining, $8 deciding criterion, $9 when it
-- ends them), under the leader's term $11. A session that was extended since it was read ($10: its
-- extensions then) is left as it is. Returns the others.
INSERT INTO session_idle AS o (session_id, attempt, observed_s, traffic_s, sightings, warned_s,
                               remaining, criterion, ends_in_s, at)
SELECT i.id, i.attempt, i.observed_s, i.traffic_s, i.sightings, i.warned_s, i.remaining::jsonb,
       i.criterion, i.ends_in_s, now()
FROM unnest($1::uuid[], $2::int[], $3::float8[], $4::float8[], $5::bigint[], $6::float8[],
            $7::text[], $8::text[], $9::float8[], $10::int[])
    AS i(id, attempt, observed_s, traffic_s, sightings, warned_s, remaining, criterion, ends_in_s,
         extensions)
JOIN sessions s ON s.id = i.id AND s.attempt = i.attempt AND s.status = 'RUNNING'
JOIN (SELECT FROM leases WHERE name = 'leader' AND term = $11 AND expires_at > now() FOR SHARE) l
    ON true
LEFT JOIN session_idle e ON e.session_id = i.id AND e.attempt = i.attempt
WHERE coalesce(e.extensions, 0) = i.extensions
ORDER BY i.id
ON CONFLICT (session_id) DO UPDATE SET
    attempt = excluded.attempt, observed_s = excluded.observed_s, traffic_s = excluded.traffic_s,
    sightings = excluded.sightings, warned_s = excluded.warned_s, remaining = excluded.remaining,
    criterion = excluded.criterion, ends_in_s = excluded.ends_in_s, at = excluded.at,
    extended_s = CASE WHEN o.attempt = excluded.attempt THEN o.extended_s ELSE 0 END,
    extensions = CASE WHEN o.attempt = excluded.attempt THEN o.extensions ELSE 0 END
WHERE o.attempt <> excluded.attempt
  OR o.extensions = (SELECT e.extensions FROM session_idle e WHERE e.session_id = o.session_id)
RETURNING session_id
