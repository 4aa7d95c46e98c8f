-- Node-seconds of site jobs in the month (UTC) of $1 (NULL: now), by resource group, owner and
-- project, and when the month ends. A kernel is a job on one node. `used`: until now. `reserved`:
-- what live jobs may use beyond that before the month ends. A job uses nothing after the end of its
-- walltime, so the jobs of the month are found by that time (index kernels_of_jobs). A job that the
-- site has not started yet reserves its whole walltime (index sessions_live_jobs). $2: jobs that
-- ended before are omitted, because node_hours_settled contains them; NULL: none is omitted.
-- `settled_s`: how long ago that was. Jobs of a renamed group are counted under its current name.
-- `aliases`: the names from which this was determined.
WITH month AS (
    SELECT n.now, date_trunc('month', n.now, 'UTC') AS begins,
           (date_trunc('month', n.now AT TIME ZONE 'UTC')
                + interval '1 month') AT TIME ZONE 'UTC' AS ends,
           (SELECT string_agg(name || ' ' || renamed_to, ',' ORDER BY name)
            FROM resource_groups
            WHERE renamed_to IS NOT NULL) AS aliases
    FROM (SELECT coalesce($1::timestamptz, now()) AS now) n
), found AS MATERIALIZED (
    SELECT k.session_id, greatest(k.started_at, m.begins) AS starts,
           least(k.ends_at, m.ends) AS ends,
           CASE WHEN k.status IN (:TERMINAL) THEN least(k.status_since, m.now) END AS ended, m.now
    FROM month m JOIN kernels k ON k.ends_at > m.begins
    WHERE k.started_at < m.ends
      AND (k.status NOT IN (:TERMINAL) OR $2::timestamptz IS NULL
           OR k.status_since >= $2::timestamptz)
), uses AS (
    SELECT s.resource_group, s.owner, s.project,
           greatest(0,
                    extract(epoch FROM least(coalesce(j.ended, j.now), j.ends) - j.starts)) AS used,
           CASE WHEN j.ended IS NULL
                THEN greatest(0, extract(epoch FROM j.ends - greatest(j.starts, j.now)))
                ELSE 0 END AS reserved
    FROM found j JOIN sessions s ON s.id = j.session_id
    UNION ALL
    SELECT s.resource_group, s.owner, s.project, 0, as_number(s.spec -> 'walltime_s')::numeric
    FROM sessions s
    JOIN kernels k ON k.session_id = s.id AND k.attempt = s.attempt AND k.started_at IS NULL
    WHERE s.status IN (:PLACED) AND s.spec ? 'job'
      AND k.status NOT IN (:TERMINAL)
)
SELECT m.ends AS month_ends, m.aliases, extract(epoch FROM now() - $2::timestamptz) AS settled_s,
       coalesce(g.renamed_to, u.resource_group) AS resource_group, u.owner, u.project,
       coalesce(sum(u.used), 0) AS used, coalesce(sum(u.reserved), 0) AS reserved
FROM month m LEFT JOIN uses u ON true LEFT JOIN resource_groups g ON g.name = u.resource_group
GROUP BY 1, 2, 3, 4, 5, 6
