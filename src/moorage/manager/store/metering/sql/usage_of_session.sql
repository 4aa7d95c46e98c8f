-- The kernels of a session ($1) with their newest usage, if any.
SELECT k.id, k.hostname, k.attempt, k.status, k.agent_id, u.at, u.cpu, u.memory, u.rx, u.tx, u.gpu,
       u.gpu_memory
FROM kernels k LEFT JOIN kernel_usage u ON u.kernel_id = k.id
WHERE k.session_id = $1::uuid ORDER BY k.attempt, k.cluster_role, k.cluster_index
