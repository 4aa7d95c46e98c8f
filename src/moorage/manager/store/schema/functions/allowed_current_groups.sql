-- Resolves former names of groups in the restrictions of projects and keys, which would otherwise
-- allow nothing.
CREATE OR REPLACE FUNCTION allowed_current_groups()
RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.resource_groups := current_groups(NEW.resource_groups);
    RETURN NEW;
END
$$;
