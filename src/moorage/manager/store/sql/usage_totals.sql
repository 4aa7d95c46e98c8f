-- Usage of all live kernels by resource group, for metrics.
SELECT s.resource_group, sum(u.cpu)::bigint AS cpu, sum(u.memory)::bigint AS memory,
       coalesce(sum(u.gpu), 0)::bigint AS gpu, coalesce(sum(u.gpu_memory), 0)::bigint AS gpu_memory
FROM kernels k JOIN kernel_usage u ON u.kernel_id = k.id JOIN sessions s ON s.id = k.session_id
WHERE k.status NOT IN ('PENDING', 'TERMINATED', 'CANCELLED', 'ERROR') AND u.at > now() - interval '1 minute'
GROUP BY s.resource_group
