INSERT INTO schema_compatibility (compatible_since, leads_since) VALUES ($1, $2)
ON CONFLICT (only_row)
DO UPDATE SET compatible_since = excluded.compatible_since, leads_since = excluded.leads_since
