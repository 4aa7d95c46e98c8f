-- Those of the endpoints $1 that are not deleted, and deleted ones that still have live replicas.
-- `fallback`: the revision that was served before the target. `rolled_back`: the revision whose
-- failure made it the target. `stop_*`: among its payer's exhausted budgets, the one that ends
-- last; a budget in gpu counts only if the endpoint requests devices.
WITH
-- include: budget_stops
SELECT e.*, r.completed_at IS NOT NULL AS proven, r.served_before AS fallback, n.revision AS newest,
       f.revision AS rolled_back, coalesce(f.reason, '') AS rollout_reason,
       coalesce(f.detail, '') AS rollout_detail, c.spec AS stable_spec,
       (SELECT coalesce(sum(m.waiting), 0) FROM model_loads m JOIN proxy_reports p USING (proxy_id)
        WHERE m.model = e.name AND p.at > now() - make_interval(secs => $2)) AS held,
       x.scope AS stop_scope, x.name AS stop_name, x.unit AS stop_unit, x.period AS stop_period,
       x.resets_at AS stop_until
FROM endpoints e
JOIN endpoint_revisions r ON r.endpoint_id = e.id AND r.revision = e.target_revision
LEFT JOIN LATERAL (
    SELECT * FROM endpoint_revisions o WHERE o.endpoint_id = e.id AND o.failed_at >= r.target_since
    ORDER BY o.failed_at DESC LIMIT 1) f ON true
JOIN LATERAL (
    SELECT o.revision
    FROM endpoint_revisions o
    WHERE o.endpoint_id = e.id ORDER BY o.revision DESC LIMIT 1) n ON true
LEFT JOIN endpoint_revisions c ON c.endpoint_id = e.id AND c.revision = e.canary_of
LEFT JOIN LATERAL (
    SELECT * FROM budget_stops b
    WHERE (b.scope, b.name) IN (('project', e.project), ('user', e.owner),
                                ('key', substring(e.created_by FROM '^key:(.*)')))
      AND (b.unit <> 'gpu' OR EXISTS (
          SELECT FROM jsonb_each_text(as_object(e.spec -> 'resources')) r
          WHERE r.key LIKE '%.%' AND r.value !~ '^[0.]*$'))
    ORDER BY b.resets_at DESC, b.scope, b.unit LIMIT 1) x ON true
WHERE e.id = ANY ($1::uuid[]) AND (e.deleted_at IS NULL OR EXISTS (
    SELECT FROM sessions s WHERE s.endpoint_id = e.id AND s.status NOT IN (:TERMINAL)))
ORDER BY e.created_at
