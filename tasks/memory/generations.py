"""What the software of a time does with memory, by the name of its loss path. Needs no torch.

- `current`: transformers 5. The loss function makes fp32 logits and shifts labels; checkpointing without re-entrance.
- `hf-2024`: transformers 4.45 to 4.48. A shifted copy of the fp32 logits beside them; re-entrant checkpointing. Its
  trainers asked for autocast beside 4-bit weights (fms-acceleration asserts it), in this and the next three.
- `fused`: the same with fused kernels for loss, norms, rotary positions and adapters (fms-acceleration, unsloth).
- `fused-2025`: as `fused`, from transformers 4.46 on, where 16-bit logits stay beside the fp32 ones.
- `chunked`: output layer and loss taken together in chunks of tokens, so that logits never exist whole (Liger), with
  the rest as in `fused`.
- `chunked-current`: the same on today's stack, checkpointing without re-entrance.
- `prime-rl-2026-01`, `-02`, `-05`: the policy trainer of prime-rl on compiled layers, by the months from which its
  output layer went over the vocabulary in chunks of 2048, of 8192, then over tokens and vocabulary in chunks of 8192.
- `prime-rl-sft`: its trainer for supervised fine-tuning in January 2026. Logits in fp32 stay until the next ones.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

PrimeRl = Literal["prime-rl-2026-01", "prime-rl-2026-02", "prime-rl-2026-05", "prime-rl-sft"]
LossPath = Literal["current", "hf-2024", "fused", "fused-2025", "chunked", "chunked-current"] | PrimeRl


class Own(NamedTuple):
    """A trainer that shards and steps by code of its own (`policy.py`). Chunks are tokens or entries; 0: all at once.

    Unless logits are kept, log-probabilities of the labels are all that leaves the output layer.
    """

    tokens: int = 0
    vocabulary: int = 0
    keeps_logits: bool = False
    tempered: bool = False
    """Whether every token has a temperature, which makes new logits and gradients of them; one is written over them."""
    adapter_slots: int = 4
    """Adapters beside each other in every layer, whatever runs; each is trained by an optimizer of its run."""


class Generation(NamedTuple):
    """What differs between generations."""

    loss: Literal["current", "shifted", "fused", "chunked", "own"]
    fused_kernels: bool = False
    reentrant: bool = False
    keeps_16bit_logits: bool = True
    repeats_keys: bool = False
    listed_experts: bool = True
    autocast_with_4_bits: bool = True
    own: Own | None = None


def _prime_rl(own: Own) -> Generation:
    return Generation("own", listed_experts=False, autocast_with_4_bits=False, own=own)


GENERATIONS: dict[LossPath, Generation] = {
    "current": Generation("current", listed_experts=False, autocast_with_4_bits=False),
    "hf-2024": Generation("shifted", reentrant=True),
    "fused": Generation("fused", fused_kernels=True, reentrant=True, keeps_16bit_logits=False, repeats_keys=True),
    "fused-2025": Generation("fused", fused_kernels=True, reentrant=True),
    "chunked-current": Generation("chunked", fused_kernels=True, listed_experts=False, autocast_with_4_bits=False),
    "chunked": Generation("chunked", fused_kernels=True, reentrant=True, repeats_keys=True),
    "prime-rl-2026-01": _prime_rl(Own(vocabulary=2048)),
    "prime-rl-2026-02": _prime_rl(Own(vocabulary=8192, tempered=True)),
    "prime-rl-2026-05": _prime_rl(Own(tokens=8192, vocabulary=8192, tempered=True)),
    "prime-rl-sft": _prime_rl(Own(keeps_logits=True, adapter_slots=1)),
}

UPCAST_IN_MODEL = ("granite", "granitemoe", "granitemoeshared")
"""Types whose 2024 code made fp32 logits in the model, which freed the 16-bit ones before the loss."""
NEVER_UPCAST = ("gpt_bigcode", "gpt2", "gpt_neo", "bloom", "opt")
"""Types whose 2024 code took the loss in the type of the logits, fp32 under autocast, and kept them during backward
(what six published GPT-BigCode peaks show; the code alone does not say who holds them)."""
REPEATED_KEYS = ("mistral", "mixtral", "qwen2", "qwen2_moe", "phi3", "starcoder2")
"""Types whose code until transformers 4.47 repeated key heads for every query head before flash attention."""
