-- Records the QoS of a new session, with its present price factor. Raises MG002 if the QoS does not
-- exist or the session's project may not use it. The lock keeps the QoS from being deleted
-- meanwhile.
CREATE OR REPLACE FUNCTION sessions_take_qos()
RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO session_qos (session_id, qos, price_factor)
    SELECT NEW.id, q.name, q.price_factor FROM qos q
    WHERE q.name = NEW.spec ->> 'qos' AND (q.projects IS NULL OR NEW.project = ANY (q.projects))
    FOR KEY SHARE;

    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'MG002',
            MESSAGE = format('qos %L does not exist, or project %L may not use it',
                             NEW.spec ->> 'qos', NEW.project),
            HINT = '`moorage qos list` lists those that it may use';
    END IF;
    RETURN NULL;
END
$$;
