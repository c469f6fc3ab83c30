"""Write a model that was tuned here as a folder that `open_checkpoint` reads; new tokenizers."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from tacit.llm.model.architecture import LanguageModel
from tacit.llm.model.extras import extra
from tacit.llm.model.tokenizer import Tokenizer

_START, _END = "<|start|>", "<|end|>"


def save_model(folder: Path, model: LanguageModel, tokenizer: Tokenizer) -> None:
    """Write weights, architecture and tokenizer under our own names of tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {
        f"{name}.weight" if name in ("embed", "positions") else name: weight.contiguous()
        for name, weight in model.weights.items()
        if not (name == "output.weight" and model.architecture.tied_output)
    }
    extra("safetensors.torch").save_file(weights, folder / "model.safetensors")
    config = {
        "model_type": "tacit",
        "architecture": asdict(model.architecture),
        "bos_token_id": list(tokenizer.starts),
        "eos_token_id": sorted(tokenizer.stops),
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    tokenizer.engine.save(str(folder / "tokenizer.json"))
    settings = {**tokenizer.special, "add_bos_token": bool(tokenizer.starts)}
    if tokenizer.template is not None:
        settings["chat_template"] = tokenizer.template
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))


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
