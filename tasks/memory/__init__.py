"""The memory account: what a training configuration needs, predicted by tracing the real model code. Needs no torch."""

from tasks.memory.account import Account, AccountCoefficients
from tasks.memory.devices import Device, this_device
from tasks.memory.estimate import account_for, account_of, coefficients_for, estimate

__all__ = [
    "Account",
    "AccountCoefficients",
    "Device",
    "account_for",
    "account_of",
    "coefficients_for",
    "estimate",
    "this_device",
]
