-- Content of an event about these budget alerts ($1). `owner`: a user who sees the event in
-- addition to the project.
SELECT a.id::text, a.scope, a.name, a.unit, a.period, a.level, a.threshold, a.used, a.resets_at,
       a.at,
       CASE a.scope WHEN 'user' THEN a.name WHEN 'key' THEN coalesce(
           (SELECT k.owner FROM api_keys k WHERE k.name = a.name AND k.revoked_at IS NULL),
           '') ELSE '' END AS owner
FROM budget_alerts a WHERE a.id = ANY ($1::text[]::bigint[]) ORDER BY a.id
