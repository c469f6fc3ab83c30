"""Features of public networks, as their owners cut them out: a file for `_private_dp.py`.

    python benchmarks/_public_features.py imdb DATA out.npz --rows 4000 --test 1000
    python benchmarks/_public_features.py cifar10 DATA out.npz --rows 10000 --test 2000

DATA holds `imdb/` and `minilm_l6_int8/`, or `cifar10/` and `effnet_lite0/`. Texts become means of
the last hidden states of MiniLM over 96 tokens; pictures the 1,280 features before the last layer
of EfficientNet-Lite0, enlarged to 96 pixels. Rows are brought to norm 1.
"""

import argparse
import json
import lzma
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

TOKENS, SIDE = 96, 96
# Repeats, kernel, stride, expansion and channels out of EfficientNet-Lite0 (Tan and Le 2019).
STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)


class Pictures:
    """EfficientNet-Lite0 without its last layer."""

    def __init__(self, folder: Path) -> None:
        from safetensors.torch import load_file

        found = load_file(folder / "effnet_lite0" / "efficientnet_lite0_fp16.safetensors")
        self.weights = {name: value.float() for name, value in found.items()}

    def __call__(self, pictures: Tensor) -> Tensor:
        """Give (n, 1280) of (n, 3, h, w) with values from 0 to 255."""
        x = functional.interpolate((pictures - 127.0) / 128.0, SIDE, mode="bilinear")
        x = functional.relu6(self.norm(self.convolve(x, "_conv_stem", 2), "_bn0"))
        at = 0
        for repeats, _, stride, expansion, _ in STAGES:
            for repeat in range(repeats):
                x = self.block(x, f"_blocks.{at}", stride if repeat == 0 else 1, expansion)
                at += 1
        x = functional.relu6(self.norm(self.convolve(x, "_conv_head", 1), "_bn1"))
        return x.mean(dim=(2, 3))

    def block(self, x: Tensor, name: str, stride: int, expansion: int) -> Tensor:
        """Expand, filter every channel, project, and add what came in where it fits."""
        y = x
        if expansion != 1:
            y = self.convolve(y, f"{name}._expand_conv", 1)
            y = functional.relu6(self.norm(y, f"{name}._bn0"))
        y = self.convolve(y, f"{name}._depthwise_conv", stride, groups=y.shape[1])
        y = functional.relu6(self.norm(y, f"{name}._bn1"))
        y = self.norm(self.convolve(y, f"{name}._project_conv", 1), f"{name}._bn2")
        return x + y if x.shape == y.shape else y

    def convolve(self, x: Tensor, name: str, stride: int, groups: int = 1) -> Tensor:
        """Convolve as TensorFlow pads: more at the end where it is uneven."""
        weight = self.weights[f"{name}.weight"]
        size = weight.shape[-1]
        pads = []
        for side in (x.shape[3], x.shape[2]):
            total = max((-(-side // stride) - 1) * stride + size - side, 0)
            pads += [total // 2, total - total // 2]
        return functional.conv2d(functional.pad(x, pads), weight, stride=stride, groups=groups)

    def norm(self, x: Tensor, name: str) -> Tensor:
        """Apply a batch norm as it is in use."""
        mean, spread, gain, bias = (
            self.weights[f"{name}.{what}"]
            for what in ("running_mean", "running_var", "weight", "bias")
        )
        return functional.batch_norm(x, mean, spread, gain, bias, eps=1e-3)


class Texts:
    """MiniLM by ONNX Runtime: the mean of the last hidden states."""

    def __init__(self, folder: Path) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        place = folder / "minilm_l6_int8"
        self.session = onnxruntime.InferenceSession(place / "model.onnx", options)
        self.tokenizer = Tokenizer.from_file(str(place / "tokenizer.json"))
        self.tokenizer.enable_truncation(TOKENS)
        self.tokenizer.enable_padding()

    def __call__(self, texts: list[str]) -> Tensor:
        """Give (n, 384)."""
        coded = self.tokenizer.encode_batch(texts)
        ids = np.array([one.ids for one in coded], dtype=np.int64)
        mask = np.array([one.attention_mask for one in coded], dtype=np.int64)
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        (hidden,) = self.session.run(None, given)
        kept = mask[:, :, None]
        return torch.from_numpy((hidden * kept).sum(1) / kept.sum(1))


def _imdb(folder: Path) -> tuple[list[str], np.ndarray]:
    lines = lzma.decompress((folder / "imdb" / "imdb50k.jsonl.xz").read_bytes()).splitlines()
    rows = [json.loads(line) for line in lines]
    order = np.random.default_rng(0).permutation(len(rows))
    labels = np.array([int(rows[at]["label"] in (1, "1", "pos", "positive")) for at in order])
    return [rows[at]["text"] for at in order], labels


def _cifar(folder: Path) -> tuple[Tensor, np.ndarray]:
    from PIL import Image

    labels = np.load(folder / "cifar10" / "labels.npz")
    parts = []
    for part in ("train_10000", "test_2000"):
        sheet = np.asarray(Image.open(folder / "cifar10" / f"cifar10_{part}.webp").convert("RGB"))
        high, wide = sheet.shape[0] // 32, sheet.shape[1] // 32
        tiles = sheet.reshape(high, 32, wide, 32, 3).transpose(0, 2, 4, 1, 3)
        parts.append(tiles.reshape(-1, 3, 32, 32)[: int(part.split("_")[1])])
    y = np.concatenate([labels["y_train"], labels["y_test"]])
    return torch.from_numpy(np.concatenate(parts)).float(), y.astype(np.int64)


def main() -> None:
    """Write the file, and say what a linear probe without privacy reaches."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["imdb", "cifar10"])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--test", type=int, default=1000)
    asked = parser.parse_args()
    given: Any
    given, labels = (_imdb if asked.kind == "imdb" else _cifar)(asked.data)
    network = Texts(asked.data) if asked.kind == "imdb" else Pictures(asked.data)
    chosen = [*range(asked.rows), *range(len(labels) - asked.test, len(labels))]
    begun, parts = time.perf_counter(), []
    with torch.no_grad():
        for at in range(0, len(chosen), 64):
            some = chosen[at : at + 64]
            taken = [given[one] for one in some]
            batch = taken if asked.kind == "imdb" else torch.stack(taken)
            parts.append(nn.functional.normalize(network(batch), dim=1))
    x, y = torch.cat(parts).numpy().astype(np.float64), labels[chosen]
    seconds = time.perf_counter() - begun
    train, test = slice(0, asked.rows), slice(asked.rows, None)
    np.savez(asked.out, x_train=x[train], y_train=y[train], x_test=x[test], y_test=y[test])
    from sklearn.linear_model import LogisticRegression

    probe = LogisticRegression(C=100.0, max_iter=500).fit(x[train], y[train])
    right = float(probe.score(x[test], y[test]))
    print(json.dumps({"rows": asked.rows, "seconds": round(seconds, 1), "probe": right}))


if __name__ == "__main__":
    main()
