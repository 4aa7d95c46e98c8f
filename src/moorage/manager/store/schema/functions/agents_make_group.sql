-- Makes the group that an agent names, and resolves an alias to its group.
CREATE OR REPLACE FUNCTION agents_make_group()
RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO resource_groups (name, options) VALUES (NEW.resource_group, '{}'::jsonb)
    ON CONFLICT (name) DO NOTHING;
    NEW.resource_group := current_group(NEW.resource_group);
    RETURN NEW;
END
$$;
