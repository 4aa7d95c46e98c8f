"""etcd: optional registry of daemons and store of shared settings. Never a source of truth for
sessions."""
