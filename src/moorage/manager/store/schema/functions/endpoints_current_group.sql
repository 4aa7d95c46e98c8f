-- Resolves former names of groups in an endpoint that is written after a rename.
CREATE OR REPLACE FUNCTION endpoints_current_group()
RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.spec := with_current_group(NEW.spec);
    IF jsonb_typeof(NEW.serving -> 'resource_groups') = 'array' THEN
        NEW.serving := jsonb_set(NEW.serving, '{resource_groups}', to_jsonb(current_groups(
            ARRAY(SELECT jsonb_array_elements_text(as_array(NEW.serving -> 'resource_groups'))))));
    END IF;
    RETURN NEW;
END
$$;
