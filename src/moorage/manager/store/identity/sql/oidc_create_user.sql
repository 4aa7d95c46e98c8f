-- Create a user for subject $2 of issuer $1, with e-mail address $3 and the first free name of $4.
WITH free AS (
    SELECT c.name FROM unnest($4::text[]) WITH ORDINALITY AS c (name, number)
    WHERE NOT EXISTS (SELECT FROM users u WHERE u.name = c.name) ORDER BY c.number LIMIT 1
), made AS (
    INSERT INTO users (name, email, status, created_by) SELECT name, $3, 'active', 'oidc' FROM free
    ON CONFLICT (name) DO NOTHING RETURNING name
)
INSERT INTO oidc_identities (user_name, issuer, subject) SELECT name, $1, $2 FROM made
ON CONFLICT DO NOTHING RETURNING user_name
