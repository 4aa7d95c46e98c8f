-- Set a price from the whole hour $4 on; prices of past hours stay. No row: the hour has passed.
INSERT INTO prices (unit, device, resource_group, since, price, changed_by)
SELECT $1, $2, $3, $4::timestamptz, $5::bigint, $6
WHERE $4::timestamptz >= date_trunc('hour', now(), 'UTC')
ON CONFLICT (unit, device, resource_group, since)
DO UPDATE SET price = excluded.price, changed_at = now(), changed_by = excluded.changed_by
RETURNING *
