-- Refuses a change of a version of a template.
CREATE OR REPLACE FUNCTION templates_keep_versions()
RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (new.project, new.name, new.version, new.body, new.bases, new.isolated) IS DISTINCT FROM
       (old.project, old.name, old.version, old.body, old.bases, old.isolated)
    THEN
        RAISE 'a version of a template never changes';
    END IF;
    RETURN new;
END
$$;
