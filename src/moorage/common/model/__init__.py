"""Domain model shared by all components: identifiers, statuses, reasons, resource slots,
specifications and errors."""
