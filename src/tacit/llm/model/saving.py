"""Write a model that was tuned here as a folder that `open_checkpoint` reads; new tokenizers."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from tacit.llm.model.architecture import LanguageModel
from tacit.llm.model.extras import extra
from tacit.llm.model.hf_writing import scatter, write_config
from tacit.llm.model.tensor_names import GPT2
from tacit.llm.model.tokenizer import Tokenizer

_START, _END = "<|start|>", "<|end|>"
_GPT2 = "transformer."  # before every name but that of the output


def save_model(folder: Path, model: LanguageModel, tokenizer: Tokenizer) -> None:
    """Write weights, architecture and tokenizer as Hugging Face's libraries read them.

    A model that none of their own architectures computes is written under our names of tensors,
    with a ``model_type`` of "tacit": `open_checkpoint` reads both, other programs the first alone.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = write_config(model)
    if written is None:
        config, weights = _own(model)
    else:
        config, weights = written.config, scatter(model, written.layout, written.biased)
        if written.layout is GPT2:
            weights = {n if n.startswith("lm_head") else _GPT2 + n: w for n, w in weights.items()}
    save_file = extra("safetensors.torch").save_file
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config |= {
        "bos_token_id": _ids(tokenizer.starts),
        "eos_token_id": _ids(sorted(tokenizer.stops)),
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    _with_starts(tokenizer).save(str(folder / "tokenizer.json"))
    settings = {
        **tokenizer.special,
        "add_bos_token": bool(tokenizer.starts),
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    if tokenizer.template is not None:
        settings["chat_template"] = tokenizer.template
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))


def _own(model: LanguageModel) -> tuple[dict[str, Any], dict[str, Tensor]]:
    weights = {
        f"{name}.weight" if name in ("embed", "positions") else name: weight.contiguous()
        for name, weight in model.weights.items()
        if not (name == "output.weight" and model.architecture.tied_output)
    }
    return {"model_type": "tacit", "architecture": asdict(model.architecture)}, weights


def _ids(ids: Sequence[int]) -> int | list[int] | None:
    """Return one id as a number, as other programs want it."""
    return list(ids) if len(ids) > 1 else next(iter(ids), None)


def _with_starts(tokenizer: Tokenizer) -> Any:  # a tokenizers.Tokenizer; the library has no types
    """Return an engine that puts the first ids itself, for programs that know no others."""
    library = extra("tokenizers")
    engine = library.Tokenizer.from_str(tokenizer.engine.to_str())
    if tokenizer.starts and engine.post_processor is None:
        names = [(engine.id_to_token(one), one) for one in tokenizer.starts]
        before = " ".join(name for name, _ in names)
        engine.post_processor = library.processors.TemplateProcessing(
            single=f"{before} $A", pair=f"{before} $A $B", special_tokens=names
        )
    return engine


def train_tokenizer(texts: Iterable[str], *, size: int) -> Tokenizer:
    """Learn a byte-level vocabulary from public texts; every text of any script can be spelled."""
    library = extra("tokenizers")
    engine = library.Tokenizer(library.models.BPE())
    before = library.pre_tokenizers
    engine.pre_tokenizer = before.ByteLevel(add_prefix_space=False, use_regex=False)
    engine.decoder = library.decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[_START, _END],
        initial_alphabet=before.ByteLevel.alphabet(),
        show_progress=False,
    )
    engine.train_from_iterator((one for text in texts for one in text), trainer)
    return Tokenizer(
        engine=engine,
        starts=(engine.token_to_id(_START),),
        stops=frozenset([engine.token_to_id(_END)]),
        template=None,
        special={"bos_token": _START, "eos_token": _END},
    )
