"""Planning: one scheduling pass over one resource group, and ``plan``. Pure."""
