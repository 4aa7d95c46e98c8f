-- What requests used from $2 until $3 (full hours) by the projects $1 (NULL: all), split by $4 (hour, day, month or none, in UTC)
-- and by the dimensions $5; those that it is not split by are ''. $6 to $9: only of this project, user, key (id or name) and
-- model. $10: the user whose keys are named (NULL: all). At most $11 rows after the row ($12 to $19).
WITH used AS (
    SELECT ended_at AS at, project, username, key_id, model, endpoint, session_id, resource_group,
           requests, tokens_in, tokens_out, tokens_cached
    FROM usage_records WHERE ended_at >= $2 AND ended_at < $3 AND ($1::text[] IS NULL OR project = ANY ($1))
    UNION ALL
    SELECT at, project, username, key_id, model, endpoint, session_id, resource_group,
           requests, tokens_in, tokens_out, tokens_cached
    FROM usage_hours WHERE at >= $2 AND at < $3 AND ($1::text[] IS NULL OR project = ANY ($1))
), summed AS (
    SELECT CASE WHEN $4 = 'none' THEN 'epoch' ELSE date_trunc($4, at AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' END AS at,
           CASE WHEN 'project' = ANY ($5::text[]) THEN project ELSE '' END AS project,
           CASE WHEN 'user' = ANY ($5) THEN username ELSE '' END AS username,
           CASE WHEN 'key' = ANY ($5) THEN key_id ELSE '' END AS key_id,
           CASE WHEN 'model' = ANY ($5) THEN model ELSE '' END AS model,
           CASE WHEN 'endpoint' = ANY ($5) THEN endpoint ELSE '' END AS endpoint,
           CASE WHEN 'session' = ANY ($5) THEN session_id ELSE '' END AS session_id,
           CASE WHEN 'resource_group' = ANY ($5) THEN resource_group ELSE '' END AS resource_group,
           sum(requests)::bigint AS requests, sum(tokens_in)::bigint AS tokens_in,
           sum(tokens_out)::bigint AS tokens_out, sum(tokens_cached)::bigint AS tokens_cached
    FROM used
    WHERE ($6::text IS NULL OR project = $6) AND ($7::text IS NULL OR username = $7) AND ($9::text IS NULL OR model = $9)
      AND ($8::text IS NULL OR key_id = $8 OR key_id IN (SELECT k.id::text FROM api_keys k WHERE k.name = $8))
    GROUP BY 1, 2, 3, 4, 5, 6, 7, 8
)
SELECT s.*, k.name AS key FROM summed s
LEFT JOIN api_keys k ON k.id::text = s.key_id AND ($10::text IS NULL OR k.owner = $10)
WHERE (s.at, s.project, s.username, s.key_id, s.model, s.endpoint, s.session_id, s.resource_group)
    > ($12::timestamptz, $13::text, $14::text, $15::text, $16::text, $17::text, $18::text, $19::text)
ORDER BY s.at, s.project, s.username, s.key_id, s.model, s.endpoint, s.session_id, s.resource_group
LIMIT $11
