-- Resolves a former name of a group, also for a manager that has not noticed the rename.
CREATE OR REPLACE FUNCTION sessions_current_group()
RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE name text := current_group(NEW.resource_group);
BEGIN
    IF name <> NEW.resource_group THEN
        NEW.resource_group := name;
        NEW.spec := jsonb_set(NEW.spec, '{resource_group}', to_jsonb(name));
    END IF;
    RETURN NEW;
END
$$;
