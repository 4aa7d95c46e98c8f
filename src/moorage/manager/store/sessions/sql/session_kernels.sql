SELECT k.*, CASE WHEN a.status = 'LOST' AND k.status NOT IN (:TERMINAL) THEN a.last_seen
            END AS unreachable_since,
            CASE WHEN a.status IN ('SUSPECT', 'LOST') AND k.status NOT IN (:TERMINAL)
                 THEN a.last_seen END AS silent_since,
            (SELECT coalesce(jsonb_agg(jsonb_build_object('slot', d.slot, 'device_id', d.device_id,
                                                          'amount', d.amount)
                                       ORDER BY d.device_id),
                             '[]')
             FROM allocations d WHERE d.kernel_id = k.id AND d.device_id <> '') AS devices,
            (SELECT to_jsonb(p) - 'kernel_id'
             FROM kernel_progress p WHERE p.kernel_id = k.id) AS progress,
            (SELECT to_jsonb(r) - 'kernel_id'
             FROM kernel_reloads r WHERE r.kernel_id = k.id) AS reload
FROM kernels k LEFT JOIN agents a ON a.id = k.agent_id
WHERE k.session_id = ANY ($1::uuid[]) ORDER BY k.attempt, k.cluster_role, k.cluster_index
