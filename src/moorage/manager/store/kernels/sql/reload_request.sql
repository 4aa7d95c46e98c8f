-- Ask the running kernels of a session ($1, in projects $4) to reload ($2 actor; $3: the main
-- kernel only). Any number of requests during a reload cause only one more reload: a kernel reloads
-- only for the newest generation. Generations are milliseconds, so that they exceed all that the
-- kernel knows, even after a backup was restored.
WITH asked AS (
    SELECT k.id, k.agent_id FROM kernels k JOIN sessions s ON s.id = k.session_id
    WHERE s.id = $1 AND s.status = 'RUNNING' AND k.attempt = s.attempt AND k.status = 'RUNNING'
      AND k.agent_id IS NOT NULL
        AND (k.cluster_role = 'main' OR NOT $3::boolean)
        AND ($4::text[] IS NULL OR s.project = ANY ($4))
), written AS (
    INSERT INTO kernel_reloads AS r (kernel_id, generation, requested_by)
    SELECT id, (extract(epoch FROM clock_timestamp()) * 1000)::bigint, $2 FROM asked ORDER BY id
    ON CONFLICT (kernel_id)
    DO UPDATE SET generation = greatest(r.generation + 1, excluded.generation),
    requested_by = excluded.requested_by, requested_at = now()
    RETURNING kernel_id
)
SELECT a.agent_id, a.id FROM written w JOIN asked a ON a.id = w.kernel_id
