-- The waiting sessions of a group with their kernel and the agents on which this run of their program could not
-- be started (index sessions_pending). Those that pause after a failure are left out.
SELECT s.id, s.revision, s.priority, s.created_at, s.status_since, s.retries, s.bypassed, s.type, s.endpoint_id, s.spec ->> 'runtime' AS runtime,
       s.spec ->> 'engine' AS engine, s.slots, k.id AS kernel_id,
       ARRAY(SELECT DISTINCT p.agent_id FROM kernels p
             WHERE s.attempt > 1 AND p.session_id = s.id AND p.attempt > s.rerun_from
               AND p.agent_id IS NOT NULL) AS avoid
FROM sessions s JOIN kernels k ON k.session_id = s.id AND k.attempt = s.attempt
WHERE s.status = 'PENDING' AND s.resource_group = $1 AND (s.not_before IS NULL OR s.not_before <= now())
ORDER BY s.created_at, s.id
