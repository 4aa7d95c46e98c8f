-- Begins the 30 days for which a name still belongs to its project.
CREATE OR REPLACE FUNCTION free_model_name()
RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE model_names SET used_at = now() WHERE name = NEW.name AND project = NEW.project;
    RETURN NULL;
END
$$;
