-- Delete alias $1, unless agents, templates or sessions still use it. Returns how many do. The body
-- of a template is stored as a string.
WITH uses AS (
    SELECT (SELECT count(*)
            FROM agents a
            WHERE a.configured_group = $1 AND a.assigned_group IS NULL
              AND a.incarnation <> '') AS agents,
           (SELECT count(*) FROM (
               SELECT DISTINCT ON (project, name) body
               FROM templates
               WHERE deleted_at IS NULL ORDER BY project, name, version DESC) t
            WHERE jsonb_path_exists(as_document(t.body), '$.**.resource_group ? (@ == $alias)',
                                    jsonb_build_object('alias', $1::text))) AS templates,
           (SELECT count(*)
            FROM (SELECT FROM sessions s WHERE s.resource_group = $1 LIMIT 1000) s) AS sessions
), released AS (
    DELETE FROM resource_groups g USING uses u
    WHERE g.name = $1 AND g.renamed_to IS NOT NULL AND u.agents + u.templates + u.sessions = 0
    RETURNING g.name
)
SELECT u.*, EXISTS (SELECT FROM released) AS released FROM uses u
