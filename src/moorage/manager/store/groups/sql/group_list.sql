SELECT g.name, CASE WHEN l.resource_group IS NULL THEN g.options
                    ELSE g.options || jsonb_build_object('limits',
-- include: group_limits
                    ) END AS options,
       g.version, g.retired_at, g.retired_at IS NOT NULL AS is_retired,
       g.changed_at, g.changed_by,
       ARRAY(SELECT a.name
             FROM resource_groups a WHERE a.renamed_to = g.name ORDER BY 1) AS aliases,
       (SELECT count(*)
        FROM agents a WHERE a.resource_group = g.name AND a.status = 'ALIVE') AS agents,
       ARRAY(SELECT DISTINCT unnest(a.runtimes)
             FROM agents a
             WHERE a.resource_group = g.name AND a.status = 'ALIVE') AS runtimes,
       (SELECT count(*)
        FROM sessions s WHERE s.resource_group = g.name AND s.status = 'PENDING') AS pending,
       (SELECT count(*) FROM sessions s WHERE s.resource_group = g.name
          AND s.status IN (:PLACED)) AS running
FROM resource_groups g LEFT JOIN group_limits l ON l.resource_group = g.name
WHERE g.renamed_to IS NULL AND ($1::text IS NULL OR g.name = current_group($1))
