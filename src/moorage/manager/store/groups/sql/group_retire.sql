-- Retire group $1: nothing new is created in it. $2: the versions that it may have (NULL: any); $3:
-- the actor; $4: even with live sessions, endpoints and agents, which stay. Returns their numbers,
-- and whether the group was `retired`.
WITH live AS (
    SELECT (SELECT count(*) FROM sessions s WHERE s.resource_group = $1
            AND s.status NOT IN (:TERMINAL)) AS sessions,
           (SELECT count(*) FROM endpoints e WHERE e.deleted_at IS NULL
            AND ($1 = e.spec ->> 'resource_group'
                 OR coalesce(e.serving -> 'resource_groups', '[]') ? $1)) AS endpoints,
           (SELECT count(*)
            FROM agents a WHERE a.resource_group = $1 AND a.incarnation <> '') AS agents
), changed AS (
    UPDATE resource_groups g
    SET retired_at = now(), version = g.version + 1, changed_at = now(), changed_by = $3
    FROM live l
    WHERE g.name = $1 AND g.retired_at IS NULL AND g.renamed_to IS NULL
      AND ($2::bigint[] IS NULL OR g.version = ANY ($2))
      AND ($4 OR l.sessions + l.endpoints + l.agents = 0)
    RETURNING g.name
)
SELECT l.*, EXISTS (SELECT FROM changed) AS retired FROM live l
