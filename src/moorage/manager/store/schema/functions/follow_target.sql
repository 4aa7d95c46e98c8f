-- Maintains `served_before`. A revision that replaces another one was preceded by that, or, if that
-- was never complete, by its predecessor. A return to one of the preceding revisions changes
-- nothing of theirs, so a revision that was undone or rolled back precedes nothing.
CREATE OR REPLACE FUNCTION follow_target()
RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    WITH RECURSIVE replaced AS (
        SELECT served_before,
               CASE WHEN completed_at IS NULL THEN served_before ELSE revision END AS served
        FROM endpoint_revisions WHERE endpoint_id = OLD.id AND revision = OLD.target_revision
    ), preceding AS (
        SELECT served_before AS revision FROM replaced
        UNION
        SELECT r.served_before FROM preceding p
        JOIN endpoint_revisions r ON r.endpoint_id = OLD.id AND r.revision = p.revision
    )
    UPDATE endpoint_revisions r SET target_since = now(), served_before = CASE
        WHEN r.revision IN (SELECT p.revision FROM preceding p WHERE p.revision IS NOT NULL)
        THEN r.served_before ELSE (SELECT served FROM replaced) END
    WHERE r.endpoint_id = NEW.id AND r.revision = NEW.target_revision;
    RETURN NULL;
END
$$;
