-- Refuses a change of a usage record.
CREATE OR REPLACE FUNCTION usage_records_stay()
RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a usage record is never changed';
END
$$;
