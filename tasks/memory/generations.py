"""What the software of a time does with memory, by the name of its loss path. Needs no torch.

- `current`: transformers 5. The loss function makes fp32 logits and shifts labels; checkpointing without re-entrance.
- `hf-2024`: transformers 4.45 to 4.48. A shifted copy of the fp32 logits beside them; re-entrant checkpointing. Its
  trainers asked for autocast beside 4-bit weights (fms-acceleration asserts it), in this and the next three.
- `fused`: the same with fused kernels for loss, norms, rotary positions and adapters (fms-acceleration, unsloth).
- `fused-2025`: as `fused`, from transformers 4.46 on, where 16-bit logits stay beside the fp32 ones.
- `chunked`: output layer and loss taken together in chunks of tokens, so that logits never exist whole (Liger), with
  the rest as in `fused`.
- `chunked-current`: the same on today's stack, checkpointing without re-entrance.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

LossPath = Literal["current", "hf-2024", "fused", "fused-2025", "chunked", "chunked-current"]


class Generation(NamedTuple):
    """What differs between generations."""

    loss: Literal["current", "shifted", "fused", "chunked"]
    fused_kernels: bool = False
    reentrant: bool = False
    keeps_16bit_logits: bool = True
    repeats_keys: bool = False
    listed_experts: bool = True
    autocast_with_4_bits: bool = True


GENERATIONS: dict[LossPath, Generation] = {
    "current": Generation("current", listed_experts=False, autocast_with_4_bits=False),
    "hf-2024": Generation("shifted", reentrant=True),
    "fused": Generation("fused", fused_kernels=True, reentrant=True, keeps_16bit_logits=False, repeats_keys=True),
    "fused-2025": Generation("fused", fused_kernels=True, reentrant=True),
    "chunked-current": Generation("chunked", fused_kernels=True, listed_experts=False, autocast_with_4_bits=False),
    "chunked": Generation("chunked", fused_kernels=True, reentrant=True, repeats_keys=True),
}

UPCAST_IN_MODEL = ("granite", "granitemoe", "granitemoeshared")
"""Types whose 2024 code made fp32 logits in the model, which freed the 16-bit ones before the loss."""
NEVER_UPCAST = ("gpt_bigcode", "gpt2", "gpt_neo", "bloom", "opt")
"""Types whose 2024 code took the loss in the type of the logits, fp32 under autocast, and kept them during backward
(what six published GPT-BigCode peaks show; the code alone does not say who holds them)."""
REPEATED_KEYS = ("mistral", "mixtral", "qwen2", "qwen2_moe", "phi3", "starcoder2")
"""Types whose code until transformers 4.47 repeated key heads for every query head before flash attention."""
