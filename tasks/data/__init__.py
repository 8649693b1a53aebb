"""The data stage: raw files become samples, and every row of every file has exactly one fate."""
