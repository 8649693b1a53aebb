"""Example projects that `gatewright init --example` copies, and the scripts that made their raw data."""
