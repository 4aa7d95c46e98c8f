-- Adds an agent that has become LOST to the outbox, in the transaction that marks it. `revision`
-- distinguishes losses of the same agent.
CREATE OR REPLACE FUNCTION outbox_agents()
RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM subscriptions WHERE enabled) THEN
        INSERT INTO event_outbox (event, subject, revision, at, body)
        VALUES ('node.lost', NEW.id, extract(epoch FROM NEW.last_seen)::bigint, now(),
                jsonb_build_object('resource_group', NEW.resource_group,
                                   'last_seen', NEW.last_seen));
    END IF;
    RETURN NULL;
END
$$;
