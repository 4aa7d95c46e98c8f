-- Returns a specification with the current name of its group.
CREATE OR REPLACE FUNCTION with_current_group(spec jsonb)
RETURNS jsonb LANGUAGE sql STABLE AS $$
SELECT CASE WHEN spec ? 'resource_group'
        THEN jsonb_set(spec, '{resource_group}', to_jsonb(current_group(spec ->> 'resource_group')))
        ELSE spec END
$$;
