-- Refuses a new term to a manager that does not know `leads_since` (decision 50). The statement
-- names the schema that the manager knows; releases before 0076 name none. Terms that a restore or
-- a failover raises have expired when they begin, and are allowed.
CREATE OR REPLACE FUNCTION refuse_older_leader()
RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.expires_at > now() AND (SELECT leads_since FROM schema_compatibility) COLLATE "C"
        > coalesce(nullif(current_setting('moorage.schema', true), ''), '0075') THEN
        RETURN NULL;
    END IF;
    NEW.schema := nullif(current_setting('moorage.schema', true), '');
    RETURN NEW;
END
$$;
