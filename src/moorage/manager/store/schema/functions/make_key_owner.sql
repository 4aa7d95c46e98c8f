-- Makes the user, the project and the membership that a new key names.
CREATE OR REPLACE FUNCTION make_key_owner()
RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE granted text := coalesce(NEW.granted_role, NEW.role);
BEGIN
    INSERT INTO users (name, platform_role, created_by)
    VALUES (NEW.owner, CASE WHEN granted IN ('auditor', 'admin') THEN granted END, NEW.created_by)
    ON CONFLICT (name) DO NOTHING;
    INSERT INTO projects (name, created_by) VALUES (NEW.project, NEW.created_by)
    ON CONFLICT (name) DO NOTHING;
    IF granted NOT IN ('auditor', 'admin') THEN
        INSERT INTO memberships (project, user_name, role, changed_by)
        VALUES (NEW.project, NEW.owner,
                CASE granted WHEN 'project-admin' THEN 'admin' ELSE granted END,
                NEW.created_by)
        ON CONFLICT (project, user_name) DO NOTHING;
    END IF;
    RETURN NULL;
END
$$;
