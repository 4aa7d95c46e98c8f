"""Settings of the application: its broker, which is its result back end, too."""

broker_url = result_backend = "redis://127.0.0.1:6379/0"
