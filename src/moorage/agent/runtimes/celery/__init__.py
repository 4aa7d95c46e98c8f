"""Runtime ``celery``: sessions that invoke a task of a Celery application."""
