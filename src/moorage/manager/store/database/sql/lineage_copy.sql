-- This database was restored, so it is another copy of the installation's data, and its new server
-- does not count as a failover.
UPDATE lineage
SET copy = gen_random_uuid(), system = (SELECT system_identifier::text FROM pg_control_system()),
    timeline = ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int
