-- Write the loads of engines ($1 agent, $2 kernel, $3 running, $4 waiting, $5 KV cache). A kernel must belong to the agent
-- that reports it. Equal loads change nothing.
INSERT INTO engine_loads AS l (kernel_id, running, waiting, kv_cache)
SELECT k.id, i.running, i.waiting, i.kv_cache
FROM unnest($1::text[], $2::uuid[], $3::int[], $4::int[], $5::int[]) AS i(agent_id, kernel_id, running, waiting, kv_cache)
JOIN kernels k ON k.id = i.kernel_id AND k.agent_id = i.agent_id
WHERE k.status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR') ORDER BY k.id
ON CONFLICT (kernel_id) DO UPDATE SET running = excluded.running, waiting = excluded.waiting, kv_cache = excluded.kv_cache, changed_at = now()
WHERE (l.running, l.waiting, l.kv_cache) IS DISTINCT FROM (excluded.running, excluded.waiting, excluded.kv_cache)
