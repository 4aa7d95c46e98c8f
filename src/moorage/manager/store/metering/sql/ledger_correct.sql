-- Add a correction: an amount, usually negative, at a time, with its reason.
INSERT INTO ledger (unit, device, rate, amount, began_at, ended_at, project, username, key_id,
                    model, endpoint, session_id, resource_group, reason, actor)
SELECT $1, $2, 0, $3::bigint, t.at, t.at, $5, $6, coalesce((
           SELECT k.id::text
           FROM api_keys k
           WHERE k.name = $7 OR k.id::text = $7 ORDER BY k.created_at DESC LIMIT 1),
       ''),
       $8, $8, $9, $10, $11, $12
FROM (SELECT date_trunc('second', $4::timestamptz, 'UTC') AS at) t
RETURNING id
