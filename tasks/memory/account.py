"""The account of one training configuration, and the coefficients that give it for other batches without torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from specs.base import Strict
from specs.errors import InputError
from specs.proposals import MemoryCheck
from tasks.memory.devices import Device

Basis = Literal["1", "S", "SS", "B", "BS", "BSS"]
"""Powers of B, samples in a micro batch, and S, its padded length in tokens."""

SEGMENT_BYTES = 2 * 2**20
"""Reserved memory comes in whole segments (CUDA's caching allocator); fragmentation beyond that is not modelled."""

How = Literal["traced", "derived", "closed-form"]


class Fits(Strict):
    """The account against one device. `needed_bytes` is reserved memory and framework, what a process takes."""

    device: str
    needed_bytes: int
    usable_bytes: int
    share: float
    fits: bool
    over_bytes: int = Field(ge=0, description="how much is missing on the device")
    reasons: list[str] = Field(default_factory=list, description="what does not fit, in words: device, host, disk")


class StagePeak(Strict):
    """The peak of one pipeline stage, on each of its ranks."""

    stage: int
    layers: int
    in_flight: int = Field(description="micro batches that have gone forward before the first goes backward")
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    peak_phase: str


class Account(Strict):
    """Predicted peak memory. `residents` are those of the peak and add up to allocated plus framework bytes."""

    peak_allocated_bytes: int
    peak_reserved_bytes: int
    peak_phase: str
    phases: dict[str, int]
    residents: dict[str, int]
    residents_by_phase: dict[str, dict[str, int]]
    framework_bytes: int
    host_peak_bytes: int
    pinned_bytes: int = Field(0, description="of the host's: page-locked, for what is offloaded")
    disk_bytes: int
    trainable_parameters: int
    total_parameters: int
    method: How
    fits: Fits | None = None
    micro_batch: int
    seq_len: int
    notes: list[str] = Field(default_factory=list)
    stages: list[StagePeak] = Field(default_factory=list, description="of a pipeline; the account is of the fullest")

    @property
    def process_bytes(self) -> int:
        """What the process takes of the device: on a CPU its resident set, on a GPU what the driver shows."""
        return self.peak_reserved_bytes + self.framework_bytes

    def with_framework(self, framework_bytes: int) -> Account:
        """The same with the framework's memory as it was measured before the model was loaded."""
        residents = self.residents | {"framework": framework_bytes}
        return self.model_copy(update={"framework_bytes": framework_bytes, "residents": residents})

    def on(self, device: Device) -> Account:
        """The same account, set against a device."""
        return self.model_copy(update={"fits": self._fits(device)})

    def _fits(self, device: Device) -> Fits:
        return fits(self.process_bytes, device, self.host_peak_bytes, self.disk_bytes)

    def check(self, device: Device) -> MemoryCheck:
        """As a proposal carries it."""
        verdict = self._fits(device)
        return MemoryCheck(
            peak_bytes=verdict.needed_bytes,
            usable_bytes=verdict.usable_bytes,
            device=verdict.device,
            method=self.method,
            fits=verdict.fits,
            residents=self.residents,
            phases=self.phases,
        )


def fits(needed_bytes: int, device: Device, host_bytes: int = 0, disk_bytes: int = 0) -> Fits:
    """Whether a process of that size has room on a device, in its host's memory and on its disk, where known."""
    over = max(0, needed_bytes - device.usable_bytes)
    compared = [
        (device.name, needed_bytes, device.usable_bytes),
        ("host memory", host_bytes, device.host_bytes),
        ("disk", disk_bytes, device.disk_bytes),
    ]
    reasons = [
        f"{name}: {needed / 2**30:.1f} GiB needed, {there / 2**30:.1f} GiB can be used"
        for name, needed, there in compared
        if there is not None and needed > there
    ]
    return Fits(
        device=device.name,
        needed_bytes=needed_bytes,
        usable_bytes=device.usable_bytes,
        share=round(needed_bytes / device.usable_bytes, 4) if device.usable_bytes else 0.0,
        fits=not reasons,
        over_bytes=over,
        reasons=reasons,
    )


class PlacePolynomial(Strict):
    """Bytes of every resident at one place of the step, as polynomials in B and S."""

    phase: str
    residents: dict[str, dict[Basis, float]]

    def at(self, micro_batch: int, seq_len: int) -> dict[str, int]:
        """Bytes by resident for one batch."""
        value = powers(micro_batch, seq_len)
        found = {name: round(sum(c * value[b] for b, c in terms.items())) for name, terms in self.residents.items()}
        return {name: size for name, size in found.items() if size > 0}


class Regime(Strict):
    """Polynomials that hold for a range of micro batches: one sample is never padded, several are."""

    micro_batch_min: int
    micro_batch_max: int
    places: list[PlacePolynomial]


class AccountCoefficients(Strict):
    """The account of one configuration for every micro batch and length in a range, without torch.

    `relative_error` is the largest difference to a trace at lengths and batches that were not used for the fit.
    """

    seq_len_min: int
    seq_len_max: int
    regimes: list[Regime]
    fixed: list[PlacePolynomial] = Field(description="places that do not depend on the batch: the optimizer's step")
    framework_bytes: int
    library_bytes: int = Field(ge=0, description="reserved beside the allocated bytes")
    host_fixed_bytes: int
    pinned_bytes: int = Field(0, description="of those of the host: page-locked")
    disk_bytes: int
    trainable_parameters: int
    total_parameters: int
    relative_error: float
    notes: list[str] = Field(default_factory=list)

    @property
    def micro_batch_max(self) -> int:
        """The largest micro batch in range."""
        return max(r.micro_batch_max for r in self.regimes)

    def covers(self, micro_batch: int, seq_len: int) -> bool:
        """Whether a batch is inside the range."""
        return 1 <= micro_batch <= self.micro_batch_max and self.seq_len_min <= seq_len <= self.seq_len_max

    def peak(self, micro_batch: int, seq_len: int) -> int:
        """Peak allocated bytes. Raises `InputError` outside the range: there a trace is needed."""
        return self.account(micro_batch, seq_len).peak_allocated_bytes

    def account(self, micro_batch: int, seq_len: int) -> Account:
        """The whole account of one batch. Raises `InputError` outside the range."""
        if not self.covers(micro_batch, seq_len):
            raise InputError(
                f"micro batch {micro_batch} at {seq_len} tokens is outside the range of these coefficients "
                f"(1 to {self.micro_batch_max}, {self.seq_len_min} to {self.seq_len_max} tokens)",
                "ask for a new account: it is traced",
            )
        regime = next(r for r in self.regimes if r.micro_batch_min <= micro_batch <= r.micro_batch_max)
        best: dict[str, dict[str, int]] = {}
        for place in (*regime.places, *self.fixed):
            residents = place.at(micro_batch, seq_len)
            if sum(residents.values()) > sum(best.get(place.phase, {}).values()):
                best[place.phase] = residents
        return assemble(
            best,
            framework_bytes=self.framework_bytes,
            library_bytes=self.library_bytes,
            host_fixed_bytes=self.host_fixed_bytes,
            pinned_bytes=self.pinned_bytes,
            disk_bytes=self.disk_bytes,
            trainable_parameters=self.trainable_parameters,
            total_parameters=self.total_parameters,
            method="derived",
            micro_batch=micro_batch,
            seq_len=seq_len,
            notes=self.notes,
        )


def powers(micro_batch: float, seq_len: float) -> dict[Basis, float]:
    """The values of the basis at one batch."""
    b, s = float(micro_batch), float(seq_len)
    return {"1": 1.0, "S": s, "SS": s * s, "B": b, "BS": b * s, "BSS": b * s * s}


def assemble(
    by_phase: dict[str, dict[str, int]],
    *,
    framework_bytes: int,
    library_bytes: int,
    host_fixed_bytes: int,
    disk_bytes: int,
    trainable_parameters: int,
    total_parameters: int,
    method: How,
    micro_batch: int,
    seq_len: int,
    notes: list[str],
    reserved_bytes: int = 0,
    pinned_bytes: int = 0,
) -> Account:
    """An account from the residents of each phase's peak. Host memory given here is what does not depend on them.

    `reserved_bytes` is what the pools of all streams reach, where that is known and more than the allocated peak.
    """
    phases = {phase: sum(residents.values()) for phase, residents in by_phase.items()}
    top = max(phases, key=lambda phase: (phases[phase], phase))
    allocated = phases[top]
    reserved = -(-(max(allocated, reserved_bytes) + library_bytes) // SEGMENT_BYTES) * SEGMENT_BYTES
    return Account(
        peak_allocated_bytes=allocated,
        peak_reserved_bytes=reserved,
        peak_phase=top,
        phases=phases,
        residents=by_phase[top] | {"framework": framework_bytes},
        residents_by_phase=by_phase,
        framework_bytes=framework_bytes,
        host_peak_bytes=host_fixed_bytes,
        pinned_bytes=pinned_bytes,
        disk_bytes=disk_bytes,
        trainable_parameters=trainable_parameters,
        total_parameters=total_parameters,
        method=method,
        micro_batch=micro_batch,
        seq_len=seq_len,
        notes=notes,
    )
