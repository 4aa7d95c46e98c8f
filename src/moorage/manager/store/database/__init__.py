"""Database: connections, batches, pages, notifications, and the statements of all subjects."""
