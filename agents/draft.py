"""A proposal in the making: values with reasons, moved inside the limits of the spec as they are set."""

from __future__ import annotations

from typing import Any

from agents.reason_texts import text
from specs.base import Strict
from specs.canonical import plain
from specs.limits import fit, limits
from specs.parameters import PARAMETERS, leaves, replace
from specs.project import Project
from specs.proposals import Reason


class Draft:
    """Parameters of one gate with a reason for each value that is not the default."""

    def __init__(self, spec: Project, gate: str, parameters: dict[str, Any]) -> None:
        self.spec = spec
        self.gate = gate
        self.parameters = parameters
        self.reasons: dict[str, Reason] = {}
        self.warnings: list[str] = []

    def get(self, path: str) -> Any:
        """The value at a dotted path."""
        return leaves(self.parameters)[path]

    def choose(self, path: str, value: Any, key: str, source: str = "rule", **values: object) -> Any:
        """Set a value for a reason of the catalogue; returns the value that the limits allow."""
        allowed, limited_by = fit(self.spec, self.gate, path, value)
        if limited_by:
            reason = text(self.spec.language, "limit", wanted=shown(value), source=limited_by)
            self.put(path, allowed, reason, "project.yaml")
        else:
            self.put(path, allowed, text(self.spec.language, key, **values), source)
        return allowed

    def put(self, path: str, value: Any, reason: str, source: str) -> None:
        """Set a value; a default needs no reason unless a person or the spec asked for it."""
        self.parameters = replace(self.parameters, path, value)
        self.reasons.pop(path, None)
        if value != default(self.gate, path, self.spec) or source != "rule":
            self.reasons[path] = Reason(parameter=path, text=reason, source=source)

    def keep_within_limits(self) -> None:
        """Move every value that no rule touched inside the limits."""
        for path in sorted({limit.path for limit in limits(self.spec, self.gate)}):
            flat = leaves(self.parameters)
            if path in flat:
                allowed, source = fit(self.spec, self.gate, path, flat[path])
                if source:
                    reason = text(self.spec.language, "limit", wanted=shown(flat[path]), source=source)
                    self.put(path, allowed, reason, "project.yaml")

    def sorted_reasons(self) -> list[Reason]:
        """Reasons in the order of the parameters."""
        order = list(leaves(self.parameters))
        return sorted(self.reasons.values(), key=lambda reason: order.index(reason.parameter))


def shown(value: Any) -> str:
    """A value as people write it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def model_of(spec: Project | None, gate: str) -> type[Strict]:
    """The model of the parameters that a gate shows; of a stage that a project adds only with its spec."""
    found = spec.parameters_of(gate) if spec is not None else PARAMETERS.get(gate)
    if found is None:
        raise KeyError(gate)
    return found


def default(gate: str, path: str, spec: Project | None = None) -> Any:
    """The default of a leaf; `...` where it has none."""
    model = model_of(spec, gate)
    head, _, rest = path.partition(".")
    if head != "training":
        field = model.model_fields[head]
        if field.is_required():
            return ...
        return leaves(plain(field.default))[rest] if rest else field.default
    from specs.parameters import TrainingConfiguration

    return leaves(plain(TrainingConfiguration()))[rest]
