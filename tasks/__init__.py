"""The stages, and what they are made of."""
