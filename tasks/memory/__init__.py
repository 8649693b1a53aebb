"""The memory account: what a training configuration needs, predicted by tracing the real model code."""
