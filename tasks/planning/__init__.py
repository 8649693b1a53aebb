"""Plan search: every way to train a model on given cards, with account, time and price. Needs no torch."""

from tasks.planning.families import families_for
from tasks.planning.machine import Machine, machine_named
from tasks.planning.plans import Limits, Plan, PlanSearch
from tasks.planning.search import find_plans, search
from tasks.planning.workload import Workload

__all__ = [
    "Limits",
    "Machine",
    "Plan",
    "PlanSearch",
    "Workload",
    "families_for",
    "find_plans",
    "machine_named",
    "search",
]
