-- Usage of all kernels in the last minute, by their agents' resource group, for metrics.
SELECT a.resource_group, sum(u.kernels_cpu)::bigint AS cpu, sum(u.kernels_memory)::bigint AS memory,
       sum(u.kernels_gpu)::bigint AS gpu, sum(u.kernels_gpu_memory)::bigint AS gpu_memory
FROM agent_usage u JOIN agents a ON a.id = u.agent_id
WHERE u.at > now() - interval '1 minute'
GROUP BY a.resource_group
