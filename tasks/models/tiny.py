"""The tiny bilingual model: half a million parameters, its own tokenizer, the same bytes each time.

It stands in for a real base model where none can be had: in tests and in the Chinese example.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from specs.canonical import canonical_bytes, digest
from tasks.models.corpus import Dialogue, make_corpus, words_of_the_trade


@dataclass(frozen=True)
class Recipe:
    """Everything that the weights depend on; another value is another model. Lengths in tokens."""

    version: int = 2
    seed: int = 20
    vocabulary: int = 2048
    hidden: int = 96
    intermediate: int = 256
    layers: int = 3
    heads: int = 4
    positions: int = 2048
    items: int = 6000
    word_repeats: int = 40
    steps: int = 160
    warmup_steps: int = 15
    batch: int = 12
    block: int = 80
    lr: float = 4e-3

    @cached_property
    def sha256(self) -> str:
        """Digest of the recipe and of the texts it is trained on; making these takes a tenth of a second."""
        return digest(
            [asdict(self), [i if isinstance(i, str) else asdict(i) for i in make_corpus(self.seed, self.items)]]
        )


RECIPE = Recipe()

PAD, START, END = "<|pad|>", "<|im_start|>", "<|im_end|>"

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def build_tiny_model(folder: Path) -> None:
    """Write a Llama of about 0.5 M parameters with tokenizer and chat template into `folder` (made if missing).

    Takes about 15 s of one core. One thread whatever the machine has, since the thread count changes bits.
    """
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    corpus = make_corpus(RECIPE.seed, RECIPE.items)
    tokenizer = _train_tokenizer(corpus)
    threads = torch.get_num_threads()
    deterministic = torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(RECIPE.seed)
            model = _make_model(tokenizer)
            _pretrain(model, *_token_stream(tokenizer, corpus))
    finally:
        torch.use_deterministic_algorithms(deterministic)
        torch.set_num_threads(threads)
    with _no_bars():
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "recipe.json").write_bytes(canonical_bytes(asdict(RECIPE)))


@contextmanager
def _no_bars() -> Iterator[None]:
    """Without the library's progress bars: two files of 2 MB need none."""
    from transformers import utils

    logging: Any = utils.logging
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _chat(tokenizer: Any, item: str | Dialogue) -> str:
    if isinstance(item, str):
        return item + END
    messages = [{"role": "user", "content": item.question}, {"role": "assistant", "content": item.answer}]
    rendered: str = tokenizer.apply_chat_template(messages, tokenize=False)
    return rendered.rstrip("\n")


def _train_tokenizer(corpus: list[str | Dialogue]) -> Any:
    """A byte-level BPE: every text has tokens, none is unknown."""
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    texts = [t for item in corpus for t in ([item] if isinstance(item, str) else [item.question, item.answer])]
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=RECIPE.vocabulary,
        special_tokens=[PAD, START, END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        max_token_length=12,
        show_progress=False,
    )
    words = [w for language in ("en", "zh") for w in words_of_the_trade(language)] * RECIPE.word_repeats
    core.train_from_iterator([*texts, *words, "user\nassistant\nsystem\n"], trainer)
    make: Any = transformers.PreTrainedTokenizerFast
    tokenizer = make(tokenizer_object=core, pad_token=PAD, eos_token=END, additional_special_tokens=[START])
    tokenizer.model_max_length = RECIPE.positions
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def _make_model(tokenizer: Any) -> Any:
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

    ids: dict[str, Any] = {
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": None,
    }
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=RECIPE.hidden,
        intermediate_size=RECIPE.intermediate,
        num_hidden_layers=RECIPE.layers,
        num_attention_heads=RECIPE.heads,
        num_key_value_heads=RECIPE.heads,
        max_position_embeddings=RECIPE.positions,
        tie_word_embeddings=True,
        initializer_range=0.05,
        **ids,
    )
    model: Any = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(do_sample=False, **ids)  # type: ignore[no-untyped-call]
    return model


def _token_stream(tokenizer: Any, corpus: list[str | Dialogue]) -> tuple[list[int], list[int]]:
    """All items one after the other, and where each begins."""
    encoded = tokenizer([_chat(tokenizer, item) for item in corpus], add_special_tokens=False)["input_ids"]
    stream: list[int] = []
    begins = []
    for ids in encoded:
        begins.append(len(stream))
        stream += ids
    return stream, begins


def _pretrain(model: Any, stream: list[int], begins: list[int]) -> None:
    """Full fine-tuning by next-token loss over blocks that begin with an item; cosine decay after a warm-up."""
    import torch

    steps, batch, block = RECIPE.steps, RECIPE.batch, RECIPE.block
    tokens = torch.tensor(stream)
    usable = torch.tensor([b for b in begins if b + block <= len(stream)])
    optimizer = torch.optim.AdamW(model.parameters(), lr=RECIPE.lr, betas=(0.9, 0.98), weight_decay=0.01)
    warmup = RECIPE.warmup_steps
    model.train()
    for step in range(steps):
        share = min(1.0, (step + 1) / warmup) * 0.5 * (1 + math.cos(math.pi * max(0, step - warmup) / (steps - warmup)))
        for group in optimizer.param_groups:
            group["lr"] = RECIPE.lr * max(share, 0.05)
        starts = usable[torch.randint(0, len(usable), (batch,))]
        ids = torch.stack([tokens[int(s) : int(s) + block] for s in starts])
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    model.eval()


if __name__ == "__main__":
    build_tiny_model(Path(sys.argv[1]))
