"""REST API models, shared by the manager that serves them and the SDK that reads them."""
