-- Raises MG001 for a project or user (TG_ARGV[0]) that is archived while it has live sessions or
-- endpoints. It runs once the row is locked, so it sees what others created until then.
CREATE OR REPLACE FUNCTION refuse_archiving_in_use()
RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    used text[];
    shown constant int := 5;
    kind constant text := TG_ARGV[0];
BEGIN
    SELECT array_agg(w.what ORDER BY w.what) INTO used
    FROM (SELECT 'endpoint ' || e.name AS what FROM endpoints e
          WHERE e.deleted_at IS NULL
            AND CASE kind WHEN 'project' THEN e.project ELSE e.owner END = NEW.name
          UNION ALL
          SELECT 'session ' || s.name FROM sessions s
          WHERE s.status NOT IN (:TERMINAL) AND s.endpoint_id IS NULL
            AND CASE kind WHEN 'project' THEN s.project ELSE s.owner END = NEW.name
          UNION ALL
          -- Replicas are left out of the list, unless their endpoint was just deleted.
          SELECT 'session ' || s.name FROM sessions s JOIN endpoints e ON e.id = s.endpoint_id
          WHERE s.status NOT IN (:TERMINAL) AND e.deleted_at IS NOT NULL
            AND CASE kind WHEN 'project' THEN s.project ELSE s.owner END = NEW.name) w;

    IF used IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'MG001',
            MESSAGE = format('%s %L is in use: %s', kind, NEW.name,
                array_to_string(used[1:shown], ', ')
                || CASE WHEN cardinality(used) > shown
                        THEN format(' and %s more', cardinality(used) - shown) ELSE '' END),
            HINT = format('stop them first (`moorage stop`), or let them run and refuse its keys: '
                '`moorage %ss set %s --status disabled`', kind, NEW.name);
    END IF;
    RETURN NEW;
END
$$;
