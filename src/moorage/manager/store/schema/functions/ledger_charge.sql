-- Charges a kernel once, even if its devices have other names later. It is PL/pgSQL because
-- Postgres plans the statement of an SQL function at each call, which took most of the time of a
-- charge.
CREATE OR REPLACE FUNCTION ledger_charge(
    kernel uuid, session uuid, job boolean, began timestamptz, until timestamptz
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO ledger (kernel_id, unit, device, rate, amount, began_at, ended_at,
                        project, username, key_id, model, endpoint, session_id, resource_group,
                        price_factor)
    SELECT kernel, r.unit, r.device, r.rate, r.rate * extract(epoch FROM t.ended - t.began)::bigint,
           t.began, t.ended, p.project, p.username, p.key_id, p.model, p.endpoint, p.session_id,
           p.resource_group,
           coalesce((SELECT q.price_factor FROM session_qos q WHERE q.session_id = $2), 1)
    FROM (SELECT date_trunc('second', $4, 'UTC') AS began,
                 greatest(date_trunc('second', $4, 'UTC'),
                          date_trunc('second', $5, 'UTC')) AS ended) t,
         ledger_rates($1, $3) r, ledger_payer($2) p
    WHERE NOT EXISTS (SELECT FROM ledger l WHERE l.kernel_id = $1)
    ON CONFLICT ON CONSTRAINT ledger_kernel_id_unit_device_key DO NOTHING;
END
$$;
