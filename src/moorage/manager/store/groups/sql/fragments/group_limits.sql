-- The limits of resource group `l.resource_group` as an object, without those that are not set.
jsonb_strip_nulls(jsonb_build_object(
    'max_batch_time_s', l.max_batch_time_s,
    'default_batch_time_s', l.default_batch_time_s,
    'max_interactive_time_s', l.max_interactive_time_s,
    'default_interactive_time_s', l.default_interactive_time_s,
    'max_per_session', nullif(l.max_per_session, '{}'),
    'max_per_user', nullif(l.max_per_user, '{}'),
    'max_running_per_user', l.max_running_per_user,
    'max_pending_per_user', l.max_pending_per_user))
