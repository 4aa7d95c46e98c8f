s.id, s.name, s.project, s.user_name AS "user", s.shared, s.channel, s.target, s.format, s.events,
s.own, s.resource_groups, s.selector, s.session_name, s.waiting_s, s.before_end_s, s.enabled,
s.reason, s.failures, s.queued, s.dropped, s.version, s.created_at, s.created_by,
s.after_event,
CASE WHEN s.previous_secret_until > now() THEN s.previous_secret_until END AS previous_secret_until
