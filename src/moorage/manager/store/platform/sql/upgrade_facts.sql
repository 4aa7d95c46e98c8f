-- The facts that `moorage upgrade plan` examines, as one JSON document. It also reads the schema of
-- the previous release, so it names only columns that exist there; other columns are read from
-- whole rows through to_jsonb. Times are in Unix seconds.
SELECT json_build_object(
    'now', extract(epoch FROM now()),
    'managers', coalesce((SELECT json_agg(to_jsonb(m) || jsonb_build_object('leads', EXISTS (
        SELECT FROM leases l
        WHERE l.name = 'leader' AND l.holder = m.id::text AND l.expires_at > now()))
        ORDER BY m.started_at, m.id) FROM managers m), '[]'),
    'agents', coalesce((SELECT json_agg(json_build_object(
        'id', a.id, 'version', a.version, 'runtimes', a.runtimes, 'resource_group',
        a.resource_group, 'connected',
        a.status = 'ALIVE' AND a.manager IS NOT NULL
          AND a.detached_stream IS DISTINCT FROM a.stream,
        'kernels', (SELECT count(*) FROM kernels k WHERE k.agent_id = a.id
                    AND k.status NOT IN (:TERMINAL))) ORDER BY a.id)
        FROM agents a WHERE a.status <> 'LOST'), '[]'),
    'backup_at', (SELECT extract(epoch FROM max(at)) FROM backups),
    'rows', coalesce((SELECT json_object_agg(c.relname, greatest(c.reltuples, 0)::bigint)
        FROM pg_class c WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace),
    '{}'),
    'transactions', coalesce((SELECT json_agg(json_build_object(
        'pid', s.pid, 'user', s.usename, 'age_s', extract(epoch FROM now() - s.xact_start))
    ORDER BY s.xact_start)
        FROM pg_stat_activity s WHERE s.datname = current_database() AND s.pid <> pg_backend_pid()
            AND s.xact_start < now() - interval '3 s'), '[]')
)::text AS facts
