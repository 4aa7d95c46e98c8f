"""Sessions over REST: lifecycle, logs, idle criteria and templates."""
