-- A sign of life of manager $1, which is reached at $2 (version: $3; connected proxies: $4). Returns all managers with
-- the beats that they had before.
WITH beat AS (
    INSERT INTO managers AS m (id, link, version, beat, proxies) VALUES ($1, $2, $3, 1, $4)
    ON CONFLICT (id) DO UPDATE SET
        link = excluded.link, version = excluded.version, beat = m.beat + 1, proxies = excluded.proxies
)
SELECT id, link, beat FROM managers
