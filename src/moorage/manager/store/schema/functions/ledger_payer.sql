-- Returns who pays for a session.
CREATE OR REPLACE FUNCTION ledger_payer(session uuid)
RETURNS TABLE (
    project text, username text, key_id text, model text, endpoint text, session_id text,
    resource_group text
) LANGUAGE sql STABLE AS $$
SELECT s.project, s.owner, coalesce((
               SELECT k.id::text FROM api_keys k
               WHERE k.name = substr(coalesce(e.created_by, s.created_by), 5)
               AND coalesce(e.created_by, s.created_by) LIKE 'key:%'
               AND k.created_at <= s.created_at
               ORDER BY k.created_at DESC LIMIT 1), ''),
           coalesce(e.name, ''), coalesce(e.name, ''), s.id::text, s.resource_group
    FROM sessions s LEFT JOIN endpoints e ON e.id = s.endpoint_id WHERE s.id = session
$$;
