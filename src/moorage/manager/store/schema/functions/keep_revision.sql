-- Refuses a change of what replicas run. A rename changes the name of a group, not which group it
-- is.
CREATE OR REPLACE FUNCTION keep_revision()
RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- A rename changes the name of the group, not which group it is.
    IF (NEW.endpoint_id, NEW.revision, NEW.spec - 'resource_group')
            = (OLD.endpoint_id, OLD.revision, OLD.spec - 'resource_group')
       AND NEW.spec ->> 'resource_group' = current_group(OLD.spec ->> 'resource_group') THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'revision % of endpoint % never changes', OLD.revision, OLD.endpoint_id
        USING ERRCODE = 'integrity_constraint_violation';
END
$$;
