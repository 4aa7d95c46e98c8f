-- Checks the owners and projects of the sessions or endpoints that a statement has added
-- (require_owner). What loops and administrators create (not `isolated`) may have an owner that is
-- no user, such as `system`.
CREATE OR REPLACE FUNCTION require_owners_of_work()
RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM require_owner('project', a.project, a.known)
    FROM (SELECT project, bool_or(isolated) AS known FROM added GROUP BY 1 ORDER BY 1) a;
    PERFORM require_owner('user', a.owner, a.known)
    FROM (SELECT owner, bool_or(isolated) AS known FROM added GROUP BY 1 ORDER BY 1) a;
    RETURN NULL;
END
$$;
