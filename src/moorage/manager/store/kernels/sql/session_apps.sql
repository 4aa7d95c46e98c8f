-- The service ports that a session declares, and those that the main kernel of its current attempt
-- reported.
SELECT s.id, s.name, s.status, coalesce(s.spec -> 'ports', '[]') AS declared,
       (SELECT coalesce(jsonb_agg(jsonb_build_object('name', p.name, 'protocol', p.protocol,
                                                     'base_path', p.base_path)
                                  ORDER BY p.name), '[]')
        FROM service_ports p JOIN kernels k ON k.id = p.kernel_id
        WHERE k.session_id = s.id AND k.attempt = s.attempt AND k.hostname = 'main1') AS reported
FROM sessions s WHERE s.id = $1::uuid AND ($2::text[] IS NULL OR s.project = ANY ($2))
