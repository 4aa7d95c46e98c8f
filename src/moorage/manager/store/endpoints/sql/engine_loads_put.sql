-- Write the loads of engines ($1 agent, $2 kernel, $3 running, $4 waiting, $5 KV cache, $6
-- context). A kernel must belong to the agent that reports it. Equal loads change nothing. Returns
-- the sessions whose context changed, because routes contain it.
WITH given AS MATERIALIZED (
    SELECT k.id, k.session_id, i.running, i.waiting, i.kv_cache, i.max_model_len,
           l.max_model_len AS before
    FROM unnest($1::text[], $2::uuid[], $3::int[], $4::int[], $5::int[], $6::int[])
        AS i(agent_id, kernel_id, running, waiting, kv_cache, max_model_len)
    JOIN kernels k ON k.id = i.kernel_id AND k.agent_id = i.agent_id
    LEFT JOIN engine_loads l ON l.kernel_id = k.id
    WHERE k.status NOT IN (:TERMINAL)
), written AS (
    INSERT INTO engine_loads AS l (kernel_id, running, waiting, kv_cache, max_model_len)
    SELECT id, running, waiting, kv_cache, max_model_len FROM given ORDER BY id
    ON CONFLICT (kernel_id)
    DO UPDATE SET running = excluded.running, waiting = excluded.waiting,
    kv_cache = excluded.kv_cache, max_model_len = excluded.max_model_len, changed_at = now()
    WHERE (l.running, l.waiting, l.kv_cache, l.max_model_len)
        IS DISTINCT FROM (excluded.running, excluded.waiting, excluded.kv_cache,
                          excluded.max_model_len)
)
SELECT session_id FROM given WHERE max_model_len IS DISTINCT FROM before
