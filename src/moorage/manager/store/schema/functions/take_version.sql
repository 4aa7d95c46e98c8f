-- Gives a changed row a new version, for If-Match.
CREATE OR REPLACE FUNCTION take_version()
RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.version := nextval('resource_versions');
    RETURN NEW;
END
$$;
