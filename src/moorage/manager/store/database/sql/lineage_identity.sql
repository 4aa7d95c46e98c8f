-- The installation, the copy of its data, and the server that holds it.
SELECT installation, copy, system, timeline FROM lineage
