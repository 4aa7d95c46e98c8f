UPDATE schema_compatibility SET leads_since = $1
