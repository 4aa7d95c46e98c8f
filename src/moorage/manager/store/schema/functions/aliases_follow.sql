-- Copies the options of a group to its aliases, for statements that join these.
CREATE OR REPLACE FUNCTION aliases_follow()
RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE resource_groups SET options = NEW.options, retired_at = NEW.retired_at
    WHERE renamed_to = NEW.name;
    RETURN NULL;
END
$$;
