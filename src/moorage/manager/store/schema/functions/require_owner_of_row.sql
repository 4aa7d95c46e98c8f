-- Checks the project and the user that a row names (require_owner). It runs after api_keys_owner,
-- which creates them for a key. A template of no project belongs to the platform.
CREATE OR REPLACE FUNCTION require_owner_of_row()
RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    CASE TG_TABLE_NAME
    WHEN 'api_keys' THEN
        PERFORM require_owner('project', NEW.project, true);
        PERFORM require_owner('user', NEW.owner, true);
    WHEN 'memberships' THEN
        PERFORM require_owner('project', NEW.project, true);
        PERFORM require_owner('user', NEW.user_name, true);
    WHEN 'user_passwords', 'user_ssh_keys', 'oidc_identities' THEN
        PERFORM require_owner('user', NEW.user_name, true);
    WHEN 'templates', 'secrets' THEN
        IF NEW.project <> '' THEN
            PERFORM require_owner('project', NEW.project, true);
        END IF;
    ELSE  -- quotas and budgets
        IF NEW.scope IN ('project', 'user') THEN
            PERFORM require_owner(NEW.scope, NEW.name, true);
        ELSIF NEW.scope = 'key' THEN
            PERFORM require_owner('project', k.project, true), require_owner('user', k.owner, true)
            FROM api_keys k WHERE k.name = NEW.name AND k.revoked_at IS NULL;
        END IF;
    END CASE;
    RETURN NULL;
END
$$;
