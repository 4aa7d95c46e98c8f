-- Resolves a former name of a group, under which a quota would have no effect.
CREATE OR REPLACE FUNCTION quotas_current_group()
RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.name := current_group(NEW.name);
    RETURN NEW;
END
$$;
