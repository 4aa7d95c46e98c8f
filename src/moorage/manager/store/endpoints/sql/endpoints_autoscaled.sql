-- The autoscaled endpoints (index endpoints_autoscaled).
SELECT id FROM endpoints WHERE deleted_at IS NULL AND serving ? 'autoscale'
