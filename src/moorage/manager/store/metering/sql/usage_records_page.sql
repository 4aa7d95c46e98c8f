-- Usage from $2 until $3 (whole hours) by the projects $1 (NULL: all), split by $4 (hour, day,
-- week, month, year or none, in UTC) and by the dimensions $5; those that it is not split by are
-- ''. $6 to $9: only of this project, user, key (id or name) and model. $10: the user whose keys
-- are named (NULL: all). At most $11 rows after the row ($12 to $20).
--
-- A part of an entry is its rate times the seconds in that part. Usage that was rolled up into a
-- month counts at the start of the month.
WITH
-- include: ledger_entries
, parts AS (
    SELECT CASE WHEN $4 = 'none' THEN 'epoch' ELSE b.at AT TIME ZONE 'UTC' END AS at,
           c.unit, c.device, c.project, c.username, c.key_id, c.model, c.endpoint, c.session_id,
           c.resource_group, c.price_factor,
           CASE WHEN c.rate = 0 THEN c.amount ELSE c.rate * greatest(0, extract(epoch FROM
               least(c.ended_at, $3, q.until,
                     CASE WHEN $4 <> 'none'
                          THEN (b.at + ('1 ' || $4)::interval) AT TIME ZONE 'UTC' END)
               - greatest(c.began_at, $2, q.since,
                          CASE WHEN $4 <> 'none' THEN b.at AT TIME ZONE 'UTC' END))) END AS amount,
           CASE WHEN isfinite(q.since)
                THEN ledger_price(c.unit, c.device, c.resource_group, q.since)
                ELSE 0 END AS price
    FROM entries c CROSS JOIN LATERAL generate_series(
        date_trunc(CASE $4 WHEN 'none' THEN 'millennium' ELSE $4 END,
                   greatest(c.began_at, $2) AT TIME ZONE 'UTC'),
        greatest(c.began_at, $2, least(c.ended_at, $3) - interval '1 second') AT TIME ZONE 'UTC',
        CASE $4 WHEN 'none' THEN interval '1000 years' ELSE ('1 ' || $4)::interval END) AS b(at)
    JOIN price_spans q ON q.unit = c.unit AND CASE WHEN c.rate = 0
        THEN q.since <= c.ended_at AND coalesce(q.until > c.ended_at, true)
        ELSE q.since < c.ended_at AND coalesce(q.until > c.began_at, true) END
    WHERE c.amount <> 0 AND c.ended_at >= $2 AND (c.ended_at > $2 OR c.rate = 0) AND c.began_at < $3
      AND ($1::text[] IS NULL OR c.project = ANY ($1))
      AND ($6::text IS NULL OR c.project = $6) AND ($7::text IS NULL OR c.username = $7)
      AND ($9::text IS NULL OR c.model = $9)
      AND ($8::text IS NULL OR c.key_id = $8
           OR c.key_id IN (SELECT k.id::text FROM api_keys k WHERE k.name = $8))
), summed AS (
    SELECT at,
           CASE WHEN 'project' = ANY ($5::text[]) THEN project ELSE '' END AS project,
           CASE WHEN 'user' = ANY ($5) THEN username ELSE '' END AS username,
           CASE WHEN 'key' = ANY ($5) THEN key_id ELSE '' END AS key_id,
           CASE WHEN 'model' = ANY ($5) THEN model ELSE '' END AS model,
           CASE WHEN 'endpoint' = ANY ($5) THEN endpoint ELSE '' END AS endpoint,
           CASE WHEN 'session' = ANY ($5) THEN session_id ELSE '' END AS session_id,
           CASE WHEN 'resource_group' = ANY ($5) THEN coalesce(g.renamed_to, resource_group)
                ELSE '' END AS resource_group,
           CASE WHEN 'device' = ANY ($5) THEN device ELSE '' END AS device,
           ledger_bounded(coalesce(sum(amount) FILTER (WHERE unit = 'requests'), 0)) AS requests,
           ledger_bounded(coalesce(sum(amount) FILTER (WHERE unit = 'tokens_in'), 0)) AS tokens_in,
           ledger_bounded(coalesce(sum(amount) FILTER (WHERE unit = 'tokens_out'),
                                   0)) AS tokens_out,
           ledger_bounded(coalesce(sum(amount) FILTER (WHERE unit = 'tokens_cached'),
                                   0)) AS tokens_cached,
           ledger_bounded(coalesce(sum(amount) FILTER (WHERE unit = 'gpu'), 0)) AS gpu_ms,
           ledger_bounded(coalesce(sum(amount) FILTER (WHERE unit = 'cpu'), 0)) AS cpu_ms,
           ledger_bounded(coalesce(sum(amount) FILTER (WHERE unit = 'memory'), 0)) AS memory_mib_s,
           ledger_bounded(coalesce(sum(amount) FILTER (WHERE unit = 'node'), 0)) AS node_ms,
           ledger_bounded(floor(sum(amount * price * price_factor * ledger_weight(unit))
                                / 2304000000)) AS cost
    FROM parts LEFT JOIN resource_groups g ON g.name = resource_group
    GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9
)
SELECT s.*, k.name AS key FROM summed s
LEFT JOIN api_keys k ON k.id::text = s.key_id AND ($10::text IS NULL OR k.owner = $10)
WHERE (s.at, s.project, s.username, s.key_id, s.model, s.endpoint, s.session_id, s.resource_group,
       s.device)
    > ($12::timestamptz, $13::text, $14::text, $15::text, $16::text, $17::text, $18::text,
       $19::text, $20::text)
ORDER BY s.at, s.project, s.username, s.key_id, s.model, s.endpoint, s.session_id, s.resource_group,
    s.device
LIMIT $11
