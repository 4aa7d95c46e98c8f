-- What an agent must know of each of these kernels, with their devices.
SELECT k.id, k.agent_id, k.session_id, k.secret, s.name, s.type, s.spec::text AS spec, s.slots, s.endpoint_id,
       e.name AS endpoint_name,
       (SELECT coalesce(jsonb_agg(jsonb_build_array(a.slot, a.device_id, a.amount) ORDER BY a.device_id), '[]')
        FROM allocations a WHERE a.kernel_id = k.id AND a.device_id <> '') AS devices
FROM kernels k JOIN sessions s ON s.id = k.session_id LEFT JOIN endpoints e ON e.id = s.endpoint_id
WHERE k.id = ANY ($1::uuid[])
