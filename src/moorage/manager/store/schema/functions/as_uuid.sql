-- Returns NULL for another type. See as_array.
CREATE OR REPLACE FUNCTION as_uuid(value jsonb)
RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT CASE WHEN value #>> '{}' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
        THEN (value #>> '{}')::uuid END
$$;
