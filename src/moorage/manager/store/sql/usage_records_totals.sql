-- Use of models between $2 and $3 by the projects $1 (NULL: all), by project, user, key and model.
SELECT project, username AS "user", key_id, model, sum(requests)::bigint AS requests, sum(tokens_in)::bigint AS tokens_in,
       sum(tokens_out)::bigint AS tokens_out, sum(tokens_cached)::bigint AS tokens_cached
FROM usage_records
WHERE ($1::text[] IS NULL OR project = ANY ($1)) AND ended_at > $2 AND ended_at <= $3
GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
