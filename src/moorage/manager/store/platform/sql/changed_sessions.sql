-- Content of an event about these sessions ($1).
SELECT id, name, project, owner AS "user", resource_group, type, status, reason, attempt, revision,
       status_since, endpoint_id,
       (SELECT jsonb_build_object('id', l.id, 'name', l.name, 'step', t.step, 'index',
                                  nullif(t.index, -1), 'run', t.run)
        FROM pipeline_steps t JOIN pipelines l ON l.id = t.pipeline_id
        WHERE t.session_id = sessions.id) AS pipeline,
       (SELECT to_jsonb(p) - 'kernel_id' FROM kernel_progress p JOIN kernels k ON k.id = p.kernel_id
        WHERE k.session_id = sessions.id AND k.attempt = sessions.attempt
          AND k.cluster_role = 'main') AS progress,
       (SELECT (to_jsonb(r) - 'kernel_id') || jsonb_build_object('status', k.status)
        FROM kernel_reloads r JOIN kernels k ON k.id = r.kernel_id
        WHERE k.session_id = sessions.id AND k.attempt = sessions.attempt
          AND k.cluster_role = 'main') AS reload
FROM sessions WHERE id = ANY ($1::uuid[])
