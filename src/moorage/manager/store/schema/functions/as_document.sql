-- Reads a document that is stored as a JSON string, which keeps the order of its keys. Returns NULL
-- for another type. It is not for parallel workers, which begin no subtransactions. See as_array.
CREATE OR REPLACE FUNCTION as_document(value jsonb)
RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN (value #>> '{}')::jsonb;
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END
$$;
