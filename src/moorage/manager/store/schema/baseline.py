"""The baseline of the migrations, and the release with which to upgrade older schemas. Pure."""

# The oldest schema that this release upgrades, which the first migration creates.
OLDEST_SCHEMA = "202611272025"
# A commit whose newest schema is this one, and which contains the migrations that lead to it.
RELEASE_BEFORE = "fa770f84"
