-- Adds a limit that a budget has reached to the outbox, in the transaction that records the alert.
CREATE OR REPLACE FUNCTION outbox_budgets()
RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM subscriptions WHERE enabled) THEN
        INSERT INTO event_outbox (event, subject, revision, at, body)
        VALUES (CASE NEW.level WHEN 'hard' THEN 'budget.exhausted' ELSE 'budget.warning' END,
                NEW.id::text, 0, NEW.at, to_jsonb(NEW) - 'id' - 'at');
    END IF;
    RETURN NULL;
END
$$;
