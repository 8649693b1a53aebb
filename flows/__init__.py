"""The run: pipeline, stage runner, gate, ledger, audit and the command line."""
