-- Raises MG001 for a project or user (TG_ARGV[0]) that is deleted although something names it:
-- sessions, endpoints, usage, keys in force, entries of the audit log. It runs once the row is
-- locked, so it sees what others created until then. Deletes with it what only an administrator
-- has set: members, quotas, budgets, passwords, and revoked keys that were never used.
CREATE OR REPLACE FUNCTION delete_only_empty()
RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    kind constant text := TG_ARGV[0];
    is_project constant boolean := kind = 'project';
    found text[];
BEGIN
    SELECT array_agg(w.what ORDER BY w.place) INTO found
    FROM (VALUES
        (1, 'sessions', EXISTS (
            SELECT FROM sessions
            WHERE CASE WHEN is_project THEN project ELSE owner END = OLD.name)),
        (2, 'endpoints', EXISTS (
            SELECT FROM endpoints
            WHERE CASE WHEN is_project THEN project ELSE owner END = OLD.name)),
        (3, 'pipelines', EXISTS (
            SELECT FROM pipelines
            WHERE CASE WHEN is_project THEN project ELSE owner END = OLD.name)),
        (4, 'templates', is_project AND EXISTS (SELECT FROM templates WHERE project = OLD.name)),
        (5, 'secrets', is_project AND EXISTS (SELECT FROM secrets WHERE project = OLD.name)),
        (6, 'names of models', is_project AND EXISTS (
            SELECT FROM model_names WHERE project = OLD.name)),
        (7, 'keys in force', EXISTS (
            SELECT FROM api_keys
            WHERE CASE WHEN is_project THEN project ELSE owner END = OLD.name
              AND revoked_at IS NULL)),
        (8, 'keys that were used', EXISTS (
            SELECT FROM api_keys
            WHERE CASE WHEN is_project THEN project ELSE owner END = OLD.name
              AND revoked_at IS NOT NULL AND last_used_at IS NOT NULL)),
        (9, 'console sessions', EXISTS (
            SELECT FROM console_sessions
            WHERE CASE WHEN is_project THEN project ELSE user_name END = OLD.name)),
        (10, 'usage', EXISTS (
            SELECT FROM usage_records
            WHERE CASE WHEN is_project THEN project ELSE username END = OLD.name)
         OR EXISTS (
            SELECT FROM usage_hours
            WHERE CASE WHEN is_project THEN project ELSE username END = OLD.name)
         OR EXISTS (
            SELECT FROM ledger
            WHERE CASE WHEN is_project THEN project ELSE username END = OLD.name)
         OR EXISTS (
            SELECT FROM ledger_months
            WHERE CASE WHEN is_project THEN project ELSE username END = OLD.name)),
        (11, 'entries in the audit log', EXISTS (
            SELECT FROM audit_log
            WHERE CASE WHEN is_project THEN project ELSE user_name END = OLD.name)),
        (12, 'cron jobs', EXISTS (
            SELECT FROM cron_jobs
            WHERE CASE WHEN is_project THEN project ELSE owner END = OLD.name))
    ) w(place, what, exist) WHERE w.exist;

    IF found IS NULL AND is_project AND OLD.name = 'default' THEN
        found := ARRAY['keys that name no project'];
    END IF;
    IF found IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'MG001',
            MESSAGE = format('%s %L is not empty: it has %s', kind, OLD.name,
                             array_to_string(found, ', ')),
            HINT = format('archive it, which keeps its history: `moorage %ss archive %s`',
                          kind, OLD.name);
    END IF;

    DELETE FROM memberships WHERE CASE WHEN is_project THEN project ELSE user_name END = OLD.name;
    DELETE FROM quotas WHERE scope = kind AND name = OLD.name;
    DELETE FROM budgets WHERE scope = kind AND name = OLD.name;
    DELETE FROM budget_alerts WHERE scope = kind AND name = OLD.name;
    DELETE FROM user_ssh_keys s USING api_keys k
    WHERE k.id = s.key_id AND CASE WHEN is_project THEN k.project ELSE k.owner END = OLD.name;
    IF NOT is_project THEN
        DELETE FROM user_ssh_keys WHERE user_name = OLD.name;
        DELETE FROM user_passwords WHERE user_name = OLD.name;
        DELETE FROM oidc_identities WHERE user_name = OLD.name;
    END IF;
    DELETE FROM api_keys WHERE CASE WHEN is_project THEN project ELSE owner END = OLD.name;
    RETURN OLD;
END
$$;
