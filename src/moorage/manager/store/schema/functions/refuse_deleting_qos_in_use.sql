-- Raises MG001 for a QoS that is deleted while live sessions use it. It runs once the row is
-- locked, so it sees the sessions that were created until then.
CREATE OR REPLACE FUNCTION refuse_deleting_qos_in_use()
RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    used text[];
    shown constant int := 5;
BEGIN
    SELECT array_agg(s.name ORDER BY s.name) INTO used
    FROM session_qos q JOIN sessions s ON s.id = q.session_id
    WHERE q.qos = OLD.name AND s.status NOT IN (:TERMINAL);

    IF used IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'MG001',
            MESSAGE = format('QoS %L is in use by sessions %s', OLD.name,
                array_to_string(used[1:shown], ', ')
                || CASE WHEN cardinality(used) > shown
                        THEN format(' and %s more', cardinality(used) - shown) ELSE '' END),
            HINT = 'stop them first (`moorage stop`), or wait until they have ended';
    END IF;
    RETURN OLD;
END
$$;
