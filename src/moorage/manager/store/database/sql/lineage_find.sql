-- Cluster and timeline of this server, and the ones that a manager has stored. The name of the
-- current WAL file begins with the timeline; the control file has the former timeline until the
-- first checkpoint after a promotion.
SELECT c.system_identifier::text AS system,
       ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int AS timeline,
       l.system AS stored_system, l.timeline AS stored_timeline
FROM pg_control_system() c LEFT JOIN lineage l ON true
