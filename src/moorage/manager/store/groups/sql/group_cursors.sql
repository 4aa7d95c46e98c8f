-- For round-robin: the agent that was chosen last, by requested architecture.
SELECT cursors FROM resource_groups WHERE name = $1
