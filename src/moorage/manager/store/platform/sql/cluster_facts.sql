-- Facts for `moorage doctor --cluster`, as one JSON document. Times are Unix seconds.
SELECT json_build_object(
    'now', extract(epoch FROM now()),
    'revision', (SELECT version_num FROM alembic_version),
    'standbys',
    (SELECT count(*) FROM pg_stat_replication WHERE coalesce(state, 'streaming') = 'streaming'),
    'connections',
    current_setting('max_connections')::int
        - current_setting('superuser_reserved_connections')::int,
    'synchronous', current_setting('synchronous_standby_names') <> '',
    'managers', coalesce((SELECT json_agg(json_build_object(
        'link', link, 'version', version, 'clock_ahead_s', clock_ahead_s, 'proxies', proxies,
        'dialout', dialout, 'asks', asks, 'plain_senders', plain_senders) ORDER BY started_at, id)
        FROM managers), '[]'),
    'agents', coalesce((SELECT json_agg(json_build_object(
        'id', id, 'address', address, 'version', version,
        'undialed', undialed,
        'connected', manager IS NOT NULL AND detached_stream IS DISTINCT FROM stream)
        ORDER BY id)
        FROM agents WHERE status <> 'LOST'), '[]'),
    'price_gaps', coalesce((SELECT json_agg(g) FROM (
-- include: price_gaps
        ) g), '[]'),
    'budget_doubts', coalesce((SELECT json_agg(d) FROM (
-- include: budget_doubts
        ) d), '[]'),
    'certificates', coalesce((SELECT json_agg(json_build_object(
        'kind', kind, 'name', name, 'until', extract(epoch FROM certificate_until))
        ORDER BY kind, name)
        FROM link_peers WHERE revoked_at IS NULL), '[]'),
    'ceilings', coalesce((SELECT json_agg(json_build_object(
        'group', name, 'ceilings', nullif(options -> 'max_priority', 'null')))
        FROM resource_groups WHERE retired_at IS NULL), '[]'),
    -- Priorities by their owners' roles; whether a priority is above a ceiling is decided
    -- elsewhere.
    'kept_keys', coalesce((SELECT json_agg(json_build_object(
        'name', k.name, 'priority', least(k.kept_priority, k.max_priority, p.max_priority),
        'role', coalesce(k.granted_role, k.role), 'membership', m.role, 'platform', u.platform_role)
        ORDER BY k.name)
        FROM api_keys k JOIN users u ON u.name = k.owner JOIN projects p ON p.name = k.project
        LEFT JOIN memberships m ON m.user_name = k.owner AND m.project = k.project
        WHERE k.kept_priority IS NOT NULL AND k.revoked_at IS NULL
          AND (k.expires_at IS NULL OR k.expires_at > now())), '[]'),
    'templates', coalesce((SELECT json_agg(json_build_object(
        'name', t.name, 'project', t.project,
        'group', coalesce(t.body #>> '{spec,resource_group}', 'default'),
        'priority', as_integer(t.body #> '{spec,priority}'))
        ORDER BY t.project, t.name)
        FROM (SELECT DISTINCT ON (project, name) project, name, as_document(body) AS body
              FROM templates WHERE deleted_at IS NULL ORDER BY project, name, version DESC) t
        WHERE as_integer(t.body #> '{spec,priority}') IS NOT NULL), '[]'),
    'queued', coalesce((SELECT json_agg(json_build_object(
        'group', q.resource_group, 'user', q.owner, 'project', q.project, 'priority', q.priority,
        'sessions', q.n, 'membership', m.role, 'platform', u.platform_role)
        ORDER BY q.priority DESC, q.owner)
        FROM (SELECT resource_group, owner, project, max(priority) AS priority, count(*) AS n
              FROM sessions
              WHERE status = 'PENDING' AND endpoint_id IS NULL
              GROUP BY resource_group, owner, project, priority) q
        JOIN users u ON u.name = q.owner
        LEFT JOIN memberships m ON m.user_name = q.owner AND m.project = q.project), '[]'),
    'backup_at', (SELECT extract(epoch FROM max(at)) FROM backups),
    'tested_at', (SELECT extract(epoch FROM max(tested_at)) FROM backups)
)::text AS facts
