-- Adds a session's start or end to the outbox if there is a subscription at all. The row belongs to
-- the transaction that changes the status, so there is neither a status without a row nor a row
-- without a status.
CREATE OR REPLACE FUNCTION outbox_sessions()
RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM subscriptions WHERE enabled) THEN
        INSERT INTO event_outbox (event, subject, revision, at, body)
        VALUES (CASE NEW.to_status WHEN 'RUNNING' THEN 'session.started' ELSE 'session.ended' END,
                NEW.session_id::text, NEW.revision, NEW.at,
                jsonb_build_object('status', NEW.to_status, 'reason', NEW.reason));
    END IF;
    RETURN NULL;
END
$$;
