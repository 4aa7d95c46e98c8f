-- Charges the kernels of an attempt that ends while their agent is silent. Their later work is not
-- charged.
CREATE OR REPLACE FUNCTION sessions_charge_lost()
RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM ledger_charge(k.id, k.session_id, false, k.running_at, a.last_seen)
    FROM kernels k JOIN agents a ON a.id = k.agent_id
    WHERE k.session_id = NEW.id AND k.attempt = OLD.attempt
      AND k.started_at IS NULL AND k.running_at IS NOT NULL
      AND k.status NOT IN (:TERMINAL) AND a.status <> 'ALIVE';
    RETURN NULL;
END
$$;
