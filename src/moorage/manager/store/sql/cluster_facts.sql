-- What `moorage doctor --cluster` looks at, as one JSON document. Times are unix seconds.
SELECT json_build_object(
    'now', extract(epoch FROM now()),
    'revision', (SELECT version_num FROM alembic_version),
    'standbys', (SELECT count(*) FROM pg_stat_replication WHERE coalesce(state, 'streaming') = 'streaming'),
    'connections', current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,
    'synchronous', current_setting('synchronous_standby_names') <> '',
    'managers', coalesce((SELECT json_agg(json_build_object(
        'link', link, 'version', version, 'clock_ahead_s', clock_ahead_s, 'proxies', proxies,
        'dialout', dialout, 'asks', asks) ORDER BY started_at, id)
        FROM managers), '[]'),
    'agents', coalesce((SELECT json_agg(json_build_object(
        'id', id, 'address', address, 'version', version,
        'undialed', undialed, 'connected', manager IS NOT NULL AND detached_stream IS DISTINCT FROM stream) ORDER BY id)
        FROM agents WHERE status <> 'LOST'), '[]'),
    'certificates', coalesce((SELECT json_agg(json_build_object(
        'kind', kind, 'name', name, 'until', extract(epoch FROM certificate_until)) ORDER BY kind, name)
        FROM link_peers WHERE revoked_at IS NULL), '[]'),
    'backup_at', (SELECT extract(epoch FROM max(at)) FROM backups),
    'tested_at', (SELECT extract(epoch FROM max(tested_at)) FROM backups)
)::text AS facts
