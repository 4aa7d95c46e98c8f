-- The links of these runs ($1 names, $2 incarnations) to manager $3 have ended: another process may
-- take the name immediately, unless the same process now reports to another manager.
UPDATE proxy_reports p SET manager = NULL
FROM unnest($1::text[], $2::text[]) AS g(id, incarnation)
WHERE p.proxy_id = g.id AND p.incarnation = g.incarnation AND p.manager = $3::uuid
RETURNING p.proxy_id
