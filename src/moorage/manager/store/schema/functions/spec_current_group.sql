-- Resolves former names of groups in a specification that is written after a rename.
CREATE OR REPLACE FUNCTION spec_current_group()
RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.spec := with_current_group(NEW.spec);
    RETURN NEW;
END
$$;
