"""`python -m flows.cli` is `gatewright`."""

from flows.cli.app import main

main()
