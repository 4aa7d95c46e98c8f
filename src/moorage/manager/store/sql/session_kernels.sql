SELECT k.*, (SELECT coalesce(jsonb_agg(jsonb_build_object('slot', a.slot, 'device_id', a.device_id,
                'amount', a.amount) ORDER BY a.device_id), '[]')
             FROM allocations a WHERE a.kernel_id = k.id AND a.device_id <> '') AS devices
FROM kernels k WHERE k.session_id = ANY ($1::uuid[]) ORDER BY k.attempt, k.cluster_role, k.cluster_index
