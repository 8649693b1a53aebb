"""Recompute each stage's metrics from its artifacts alone, by code that shares only the formats with the stage."""
