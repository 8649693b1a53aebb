"""The evaluate stage: held-out losses, side-by-side answers, and the release bundle."""
