"""The baseline of the migrations, and the release that upgrades older schemas. Pure."""

# The oldest schema that this release upgrades, which the first migration creates.
OLDEST_SCHEMA = "202611272025"
# A commit whose newest schema is this one. It contains the migrations that lead there.
RELEASE_BEFORE = "fa770f84"
