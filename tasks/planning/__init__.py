"""Plan search: every way to train a model on given cards, with account, time and price. Needs no torch.

Start at `search.find_plans`; nothing is imported here, so that the words of plans are at hand without numpy.
"""
