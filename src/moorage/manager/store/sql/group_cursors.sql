-- round-robin: the agent that was chosen last, by architecture as asked for.
SELECT cursors FROM resource_groups WHERE name = $1
