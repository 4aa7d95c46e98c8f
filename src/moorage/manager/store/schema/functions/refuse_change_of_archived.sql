-- Raises MG001 for a change of an archived project or user (TG_ARGV[0]) other than its restoration.
CREATE OR REPLACE FUNCTION refuse_change_of_archived()
RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM require_owner(TG_ARGV[0], OLD.name, true);
    RETURN NEW;
END
$$;
