-- Link subject $3 of issuer $2 to user $1, and no other subject of that provider. `taken_by`: the
-- user that it is already linked to, in which case nothing is changed. No row: there is no such
-- user.
WITH taken AS (
    SELECT user_name FROM oidc_identities WHERE issuer = $2 AND subject = $3 AND user_name <> $1
), linked AS (
    INSERT INTO oidc_identities AS o (user_name, issuer, subject)
    SELECT name, $2, $3 FROM users WHERE name = $1 AND NOT EXISTS (SELECT FROM taken)
    ON CONFLICT (user_name) DO UPDATE SET issuer = excluded.issuer, subject = excluded.subject
    RETURNING user_name
), ended AS (
    UPDATE console_sessions c SET ended_at = now()
    WHERE c.user_name = $1 AND c.by_oidc AND c.ended_at IS NULL AND EXISTS (SELECT FROM linked)
      AND NOT EXISTS (SELECT FROM oidc_identities
                      WHERE issuer = $2 AND subject = $3 AND user_name = $1)
)
SELECT name, (SELECT user_name FROM taken) AS taken_by FROM users WHERE name = $1
