-- Create group $1, or replace its options with $2 and its limits ($7 to $14, if $6 says that it has
-- any). $3: the versions that it may have now (NULL allows any, or none). $4: the actor. $5: only
-- create, or restore a retired group. No row: the group has another version, exists although it
-- must not, does not exist although it must, or is retired.
WITH put AS (
    INSERT INTO resource_groups AS g (name, options, changed_by)
    SELECT $1, $2, $4
    WHERE $3::bigint[] IS NULL OR EXISTS (SELECT FROM resource_groups WHERE name = $1)
    ON CONFLICT (name)
    DO UPDATE SET options = excluded.options, version = g.version + 1, retired_at = NULL,
    changed_at = now(), changed_by = excluded.changed_by
    WHERE ($3::bigint[] IS NULL OR g.version = ANY ($3)) AND (g.retired_at IS NOT NULL) = $5
      AND g.renamed_to IS NULL
    RETURNING name, version
), removed AS (
    DELETE FROM group_limits l USING put WHERE l.resource_group = put.name AND NOT $6::boolean
), limited AS (
    INSERT INTO group_limits AS l (resource_group, max_batch_time_s, default_batch_time_s,
                                   max_interactive_time_s, default_interactive_time_s,
                                   max_per_session, max_per_user, max_running_per_user,
                                   max_pending_per_user)
    SELECT name, $7, $8, $9, $10, $11, $12, $13, $14 FROM put WHERE $6::boolean
    ON CONFLICT (resource_group) DO UPDATE
    SET max_batch_time_s = excluded.max_batch_time_s,
        default_batch_time_s = excluded.default_batch_time_s,
        max_interactive_time_s = excluded.max_interactive_time_s,
        default_interactive_time_s = excluded.default_interactive_time_s,
        max_per_session = excluded.max_per_session, max_per_user = excluded.max_per_user,
        max_running_per_user = excluded.max_running_per_user,
        max_pending_per_user = excluded.max_pending_per_user
)
SELECT version FROM put
