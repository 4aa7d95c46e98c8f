-- Node-seconds of the jobs of the month (UTC) of $1 (NULL: now) that ended before `settled`, by
-- resource group, owner and project. They no longer change, because all transactions that ended
-- such a job were committed $2 seconds ago.
WITH month AS (
    SELECT date_trunc('month', n.now, 'UTC') AS begins,
           least(n.now, now()) - make_interval(secs => $2) AS settled,
           (date_trunc('month', n.now AT TIME ZONE 'UTC')
                + interval '1 month') AT TIME ZONE 'UTC' AS ends,
           (SELECT string_agg(name || ' ' || renamed_to, ',' ORDER BY name)
            FROM resource_groups
            WHERE renamed_to IS NOT NULL) AS aliases
    FROM (SELECT coalesce($1::timestamptz, now()) AS now) n
), uses AS (
    SELECT s.resource_group, s.owner, s.project, greatest(0, extract(
               epoch FROM least(k.status_since, k.ends_at, m.ends)
                   - greatest(k.started_at, m.begins))) AS used
    FROM month m JOIN kernels k ON k.ends_at > m.begins JOIN sessions s ON s.id = k.session_id
    WHERE k.started_at < m.ends AND k.status IN (:TERMINAL) AND k.status_since < m.settled
)
SELECT m.ends AS month_ends, m.aliases, m.settled,
       coalesce(g.renamed_to, u.resource_group) AS resource_group, u.owner, u.project,
       coalesce(sum(u.used), 0) AS used
FROM month m LEFT JOIN uses u ON true LEFT JOIN resource_groups g ON g.name = u.resource_group
GROUP BY 1, 2, 3, 4, 5, 6
