SELECT unit, device, resource_group, since, price, changed_at, changed_by FROM prices
ORDER BY unit, device, resource_group, since
