-- The $2 sessions whose kernels together use the most of $1 (cpu, memory, rx, tx, gpu, gpu_memory),
-- otherwise the newest. $3: only in these projects.
WITH used AS (
    SELECT k.session_id, string_agg(DISTINCT k.agent_id, ',') AS agents, max(u.at) AS at,
           count(u.kernel_id) AS kernels, sum(u.cpu)::bigint AS cpu,
           sum(u.memory)::bigint AS memory, sum(u.rx)::bigint AS rx, sum(u.tx)::bigint AS tx,
           sum(u.gpu)::bigint AS gpu, sum(u.gpu_memory)::bigint AS gpu_memory
    FROM kernels k JOIN kernel_usage u ON u.kernel_id = k.id
    WHERE k.status NOT IN ('PENDING', :TERMINAL) GROUP BY k.session_id
)
SELECT s.id, s.name, s.type, s.status, s.resource_group, s.owner, s.slots, s.created_at, u.*
FROM used u JOIN sessions s ON s.id = u.session_id AND ($3::text[] IS NULL OR s.project = ANY ($3))
ORDER BY CASE $1::text WHEN 'cpu' THEN u.cpu WHEN 'memory' THEN u.memory WHEN 'rx' THEN u.rx
                       WHEN 'tx' THEN u.tx WHEN 'gpu' THEN u.gpu
                       WHEN 'gpu_memory' THEN u.gpu_memory END DESC NULLS LAST, s.created_at DESC
LIMIT $2
