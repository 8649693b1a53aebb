"""Makes the raw data of the examples, the same bytes each time: `python -m examples.make`."""
