"""Which model, which route, which card, rent or buy: built on the plan search. Needs no torch."""
