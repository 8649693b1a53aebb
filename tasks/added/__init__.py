"""Stages that a project adds: how they are run and verified, and the importable tasks that come with Gatewright."""
