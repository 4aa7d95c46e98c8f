-- Write the newest usage of agents ($1, with their incarnations $2, CPU $3, memory $4 and devices
-- $5) and of their kernels ($6 agent, $7 kernel, $8 to $13 values). Each agent and each kernel
-- occurs once. Rows of an outdated incarnation, and of kernels that do not exist or belong to
-- another agent, are ignored. The usage of each agent's kernels is also summed up, so that the sum
-- can be read without reading all kernels.
WITH reporting AS (
    SELECT a.id, i.cpu, i.memory, i.devices::jsonb AS devices
    FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::text[])
         AS i(id, incarnation, cpu, memory, devices)
    JOIN agents a ON a.id = i.id AND a.incarnation = i.incarnation
), used AS MATERIALIZED (
    SELECT k.id, k.agent_id, i.cpu, i.memory, i.rx, i.tx, i.gpu, i.gpu_memory
    FROM unnest($6::text[], $7::uuid[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[],
                $12::bigint[], $13::bigint[])
         AS i(agent_id, kernel_id, cpu, memory, rx, tx, gpu, gpu_memory)
    JOIN reporting s ON s.id = i.agent_id
    JOIN kernels k ON k.id = i.kernel_id AND k.agent_id = i.agent_id
), node AS (
    INSERT INTO agent_usage AS u (agent_id, at, cpu, memory, devices,
                                  kernels_cpu, kernels_memory, kernels_gpu, kernels_gpu_memory)
    SELECT r.id, now(), r.cpu, r.memory, r.devices,
           coalesce(t.cpu, 0), coalesce(t.memory, 0), coalesce(t.gpu, 0), coalesce(t.gpu_memory, 0)
    FROM reporting r LEFT JOIN (
        SELECT agent_id, sum(cpu) AS cpu, sum(memory) AS memory, sum(gpu) AS gpu,
               sum(gpu_memory) AS gpu_memory
        FROM used GROUP BY 1) t ON t.agent_id = r.id
    ORDER BY r.id
    ON CONFLICT (agent_id) DO UPDATE
    SET at = excluded.at, cpu = excluded.cpu, memory = excluded.memory, devices = excluded.devices,
        kernels_cpu = excluded.kernels_cpu, kernels_memory = excluded.kernels_memory,
        kernels_gpu = excluded.kernels_gpu, kernels_gpu_memory = excluded.kernels_gpu_memory
)
INSERT INTO kernel_usage AS u (kernel_id, at, cpu, memory, rx, tx, gpu, gpu_memory)
SELECT id, now(), cpu, memory, rx, tx, gpu, gpu_memory FROM used ORDER BY id
ON CONFLICT (kernel_id) DO UPDATE
SET at = excluded.at, cpu = excluded.cpu, memory = excluded.memory, rx = excluded.rx,
    tx = excluded.tx, gpu = excluded.gpu, gpu_memory = excluded.gpu_memory
