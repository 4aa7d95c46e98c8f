-- What an agent must know to run these kernels: spec and devices, and whether it has begun to start
-- them (`begun`). For a cluster, also the addresses of its kernels and the SSH key pair that they
-- share. For a pipeline step, also its outputs, and its inputs with their sessions, names and
-- paths.
SELECT k.id, k.agent_id, k.session_id, k.attempt, k.status <> 'SCHEDULED' AS begun, k.secret,
       s.name, s.owner, s.project, s.type, s.spec::text AS spec, s.slots, s.endpoint_id,
       e.name AS endpoint_name,
       g.options ->> 'container_user' AS container_user,
       as_number(g.options #> '{preemption,max_grace_s}') AS max_grace_s,
       (SELECT coalesce(jsonb_agg(jsonb_build_array(a.slot, a.device_id, a.amount)
                                  ORDER BY a.device_id),
                        '[]')
        FROM allocations a WHERE a.kernel_id = k.id AND a.device_id <> '') AS devices,
       CASE WHEN s.spec -> 'secret_env' <> '{}' THEN (
           SELECT jsonb_agg(jsonb_build_array(v.key, x.name, x.key_id, encode(x.sealed, 'hex')))
           FROM jsonb_each_text(as_object(s.spec -> 'secret_env')) v
           JOIN secrets x ON x.project = s.project AND x.name = v.value) END AS secrets,
       k.hostname, k.cluster_role, k.cluster_index, k.lease_s, s.isolated, s.traceparent,
       CASE WHEN s.spec ? 'cluster' THEN (
           SELECT jsonb_agg(jsonb_build_array(p.id, p.hostname,
                      -- A cluster keeps the address of an agent that has begun to dial out, because
                      -- its kernels use no proxy.
                      CASE WHEN n.address LIKE '%.agent.invalid' AND n.direct_address <> ''
                           THEN n.direct_address
                           ELSE n.address END)
                  ORDER BY p.cluster_role, p.cluster_index)
           FROM kernels p JOIN agents n ON n.id = p.agent_id
           WHERE p.session_id = k.session_id AND p.attempt = k.attempt) END AS peers,
       CASE WHEN s.spec ? 'cluster' THEN (
           SELECT ARRAY[y.private_key, y.public_key]
           FROM session_keys y WHERE y.session_id = s.id) END AS keys,
       CASE WHEN s.files IS NOT NULL THEN s.files -> 'outputs' END AS outputs,
       CASE WHEN s.files IS NOT NULL THEN (
           SELECT jsonb_agg(DISTINCT jsonb_build_array(
                      coalesce(o.adopted_from, o.id), i ->> 1, i ->> 2))
           FROM jsonb_array_elements(as_array(s.files -> 'inputs')) i
           JOIN session_dependencies d ON d.session_id = s.id AND d.condition = 'success'
           JOIN pipeline_steps t ON t.session_id = d.depends_on AND t.position = as_integer(i -> 0)
           JOIN sessions o ON o.id = d.depends_on) END AS inputs
FROM kernels k JOIN sessions s ON s.id = k.session_id LEFT JOIN endpoints e ON e.id = s.endpoint_id
LEFT JOIN resource_groups g ON g.name = s.resource_group
WHERE k.id = ANY ($1::uuid[])
