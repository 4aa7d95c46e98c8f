-- Returns the price that applies: the one for the resource group comes first, then the one for the
-- device, by its full name or else by the longest part of it, then the newest. System sessions have
-- `system` in place of a device, and only a price that names it applies to them.
CREATE OR REPLACE FUNCTION ledger_price(u text, d text, g text, t timestamptz)
RETURNS bigint LANGUAGE sql STABLE AS $$
SELECT coalesce((
        SELECT p.price FROM prices p
        WHERE p.unit = u
          AND (p.device = d OR (u = 'gpu' AND device_named(p.device, d))
               OR (p.device = '' AND NOT (u IN ('cpu', 'memory') AND d = 'system')))
          AND p.resource_group IN ('', g) AND p.since <= t
        ORDER BY p.resource_group <> '' DESC, p.device = d AND d <> '' DESC,
                 length(p.device) DESC, p.since DESC LIMIT 1), 0)
$$;
