"""Incremental planning: a planner kept between passes that re-examines only what changed. Pure."""
