-- Running interactive and system sessions with idle criteria, of their own or of their resource
-- group, with their observations. `told`: whether the detail contains a warning (after $2).
-- `reached`: all their agents report. `traffic_known`: every proxy reports traffic to apps, and did
-- so in the last $1 seconds, or the session has no apps. Observations of an earlier attempt do not
-- count. The indexes sessions_interactive and sessions_with_idle contain no other sessions.
WITH policies AS MATERIALIZED (
    SELECT name, options -> 'idle' AS rules FROM resource_groups WHERE options ? 'idle'
), proxies AS MATERIALIZED (
    SELECT coalesce(bool_and(tells_apps AND at > now() - make_interval(secs => $1)), true) AS told
    FROM proxy_reports
), found AS (
    SELECT id FROM sessions WHERE type IN (:ATTENDED) AND status = 'RUNNING'
       AND resource_group = ANY (ARRAY(SELECT name FROM policies))
    UNION
    SELECT id FROM sessions WHERE type IN (:ATTENDED) AND status = 'RUNNING' AND spec ? 'idle'
)
SELECT s.id, s.project, s.attempt, s.slots, s.spec -> 'idle' AS choice, p.rules,
       coalesce(t.sightings, 0) AS sightings,
       coalesce(s.spec -> 'ports', '[]') = '[]' OR (SELECT told FROM proxies) AS traffic_known,
       NOT EXISTS (SELECT FROM kernels k JOIN agents a ON a.id = k.agent_id
                   WHERE k.session_id = s.id AND k.attempt = s.attempt
                     AND a.status <> 'ALIVE') AS reached,
       i.observed_s, i.traffic_s, i.sightings AS seen, i.warned_s, i.extended_s, i.extensions,
       starts_with(s.detail, $2) OR strpos(s.detail, '; ' || $2) > 0 AS told
FROM found f JOIN sessions s USING (id) LEFT JOIN policies p ON p.name = s.resource_group
LEFT JOIN session_traffic t ON t.session_id = s.id
LEFT JOIN session_idle i ON i.session_id = s.id AND i.attempt = s.attempt
WHERE s.suspended_attempt IS DISTINCT FROM s.attempt -- a suspended session is not idle
ORDER BY s.id
