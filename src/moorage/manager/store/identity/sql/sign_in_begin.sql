-- Count an attempt to sign in as $1 before its password is checked, so that parallel guesses count
-- as well. After $2 attempts without success, each further attempt locks the name: first for a
-- second, then for twice as long each time, up to $3 seconds. Returns the hash (NULL: no such
-- active user, or no password) unless the name is `locked` for `seconds` more.
WITH old AS (
    DELETE FROM sign_in_attempts WHERE at < now() - interval '1 day' AND name <> $1
), counted AS (
    INSERT INTO sign_in_attempts AS a (name, failures) VALUES ($1, 1)
    ON CONFLICT (name) DO UPDATE SET
        failures = CASE WHEN a.at < now() - interval '1 day' THEN 1
                        ELSE least(a.failures + 1, 1000) END,
        at = now(),
        locked_until = CASE WHEN a.failures + 1 >= $2 THEN now() + make_interval(
            secs => least(2 ^ least(a.failures + 1 - $2, 30), $3)::float8) END
    WHERE a.locked_until IS NULL OR a.locked_until <= now()
    RETURNING name
)
SELECT (SELECT p.hash
        FROM user_passwords p JOIN users u ON u.name = p.user_name AND u.status = 'active'
        WHERE p.user_name = $1) AS hash,
       NOT EXISTS (SELECT FROM counted) AS locked,
       coalesce((SELECT ceil(extract(epoch FROM s.locked_until - now())) FROM sign_in_attempts s
                 WHERE s.name = $1), 0)::int AS seconds
