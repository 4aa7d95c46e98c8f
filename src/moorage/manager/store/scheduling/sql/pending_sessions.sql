-- The sessions among these ($1) that are pending, of any group, with their main kernel. Sessions
-- that are held or in backoff, or with a begin time in the future, are omitted. `avoid`: the agents
-- on which this run could not be started (of a cluster: those on which a kernel failed). `subs`:
-- the sub kernels of a cluster. `earlier_agents`: agents on which a kernel of an earlier attempt
-- may still run, unless the spec allows overlap; after a backup was restored, also agents that may
-- run the session without the database's knowledge (index agents_not_ready).
SELECT s.id, s.resource_group, s.revision, s.priority, s.created_at, s.status_since, s.retries,
       s.bypassed, s.type, s.endpoint_id, s.spec ->> 'runtime' AS runtime,
       s.spec ->> 'engine' AS engine, s.slots, k.id AS kernel_id,
       ARRAY(SELECT DISTINCT p.agent_id FROM kernels p
             WHERE s.attempt > 1 AND p.session_id = s.id AND p.attempt > s.requeued_from
               AND p.agent_id IS NOT NULL
               AND (p.status = 'ERROR' OR NOT s.spec ? 'cluster')) AS avoid,
       CASE WHEN coalesce(s.spec ->> 'overlap',
                          CASE WHEN s.endpoint_id IS NOT NULL THEN 'allowed' END)
                 IS DISTINCT FROM 'allowed' THEN ARRAY(
           SELECT e.agent_id
           FROM kernels e
           WHERE s.attempt > 1 AND e.session_id = s.id AND e.attempt < s.attempt
             AND e.status NOT IN (:TERMINAL)
           UNION
           SELECT n.id FROM agents n WHERE NOT n.ready AND (n.restored_at >= s.created_at
             OR n.unknown_kernels @> jsonb_build_array(jsonb_build_object('session_id', s.id)))
           ORDER BY 1) END AS earlier_agents,
       s.owner, s.project, s.isolated, s.spec ->> 'arch' AS arch,
       nullif(s.spec -> 'labels', '{}') AS labels, nullif(s.spec -> 'agents', '[]') AS agents,
       least(as_number(s.spec -> 'timeout_s'), as_number(s.spec -> 'max_lifetime_s'),
             as_number(s.spec -> 'walltime_s')) AS runs_s,
       as_number(s.spec -> 'stop_grace_s')
           + coalesce(as_number(s.spec #> '{checkpoint,grace_s}'), 0) AS stop_s,
       CASE WHEN s.spec ? 'job' THEN as_number(s.spec -> 'walltime_s') END AS job_s,
       s.spec::text AS spec,
       CASE WHEN s.spec ? 'cluster' THEN (
           SELECT array_agg(o.id ORDER BY o.cluster_index) FROM kernels o
           WHERE o.session_id = s.id AND o.attempt = s.attempt
             AND o.cluster_role = 'sub') END AS subs,
-- include: unmet_dependencies
FROM sessions s
JOIN kernels k ON k.session_id = s.id AND k.attempt = s.attempt AND k.hostname = 'main1'
WHERE s.id = ANY ($1::uuid[]) AND s.status = 'PENDING' AND s.held_by IS NULL
  AND (s.not_before IS NULL OR s.not_before <= now())
  AND (s.starts_at IS NULL OR s.starts_at <= now())
