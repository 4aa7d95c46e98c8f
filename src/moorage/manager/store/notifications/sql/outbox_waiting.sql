-- For subscriptions ($1) that examined waiting sessions up to $2 and report them after $3 seconds:
-- the sessions that have now ($4) waited for so long, not counting the time before `starts_at`.
SELECT i.subscription_id::text, s.id
FROM unnest($1::uuid[], $2::timestamptz[], $3::float8[]) AS i(subscription_id, after, waiting_s)
CROSS JOIN resource_groups g
JOIN sessions s ON s.resource_group = g.name AND s.status = 'PENDING' AND s.attempt = 1
    AND s.created_at > i.after - make_interval(secs => i.waiting_s)
    AND s.created_at <= $4::timestamptz - make_interval(secs => i.waiting_s)
    AND s.starts_at IS NULL
UNION ALL
SELECT i.subscription_id::text, s.id
FROM unnest($1::uuid[], $2::timestamptz[], $3::float8[]) AS i(subscription_id, after, waiting_s)
CROSS JOIN resource_groups g
JOIN sessions s ON s.resource_group = g.name AND s.status = 'PENDING' AND s.attempt = 1
    AND (s.not_before IS NOT NULL OR s.starts_at IS NOT NULL) AND s.starts_at IS NOT NULL
    AND greatest(s.not_before, s.starts_at) > i.after - make_interval(secs => i.waiting_s)
    AND greatest(s.not_before, s.starts_at) <= $4::timestamptz - make_interval(secs => i.waiting_s)
