-- The replicas of endpoints ($1): all live ones, and the ten newest that have ended (index sessions_by_endpoint).
SELECT s.endpoint_id, s.id, s.name, s.status, s.reason, s.detail, s.created_at, s.status_since, s.ready_at,
       coalesce(s.endpoint_revision, 1) AS revision, s.draining_since, s.drain_reason,
       CASE WHEN s.status = 'RUNNING' THEN s.deadline_at END AS ends_at,
       k.agent_id, k.log_tail, k.detail AS kernel_detail, coalesce(a.status <> 'ALIVE', false) AS agent_silent,
       coalesce(a.cordon = 'drain', false) AS agent_drained
FROM unnest($1::uuid[]) AS e(id)
CROSS JOIN LATERAL (
    SELECT * FROM (SELECT * FROM sessions l WHERE l.endpoint_id = e.id
                     AND l.status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR')) live
    UNION ALL
    SELECT * FROM (SELECT * FROM sessions d WHERE d.endpoint_id = e.id
                     AND d.status IN ('TERMINATED', 'CANCELLED', 'ERROR')
                   ORDER BY d.created_at DESC LIMIT 10) ended) s
LEFT JOIN kernels k ON k.session_id = s.id AND k.attempt = s.attempt AND k.hostname = 'main1'
LEFT JOIN agents a ON a.id = k.agent_id
ORDER BY s.created_at DESC, s.id DESC
