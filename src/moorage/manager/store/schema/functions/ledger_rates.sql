-- Returns what a kernel uses: thousandths of GPUs, cpus and nodes, and MiB of memory.
CREATE OR REPLACE FUNCTION ledger_rates(kernel uuid, job boolean)
RETURNS TABLE (unit text, device text, rate bigint) LANGUAGE sql STABLE AS $$
SELECT CASE a.slot WHEN 'cpu' THEN 'cpu' WHEN 'mem' THEN 'memory' ELSE 'gpu' END,
           CASE WHEN a.slot NOT IN ('cpu', 'mem') THEN coalesce(g.model, '')
                WHEN (SELECT s.type FROM kernels k JOIN sessions s ON s.id = k.session_id
                      WHERE k.id = kernel) = 'system' THEN 'system' ELSE '' END,
           sum(CASE a.slot WHEN 'mem' THEN (a.amount + 1048575) / 1048576 ELSE a.amount END)::bigint
    FROM allocations a LEFT JOIN agent_slots g USING (agent_id, slot, device_id)
    WHERE a.kernel_id = kernel AND a.slot <> 'jobs' GROUP BY 1, 2
    UNION ALL SELECT 'node', '', 1000 WHERE job
$$;
