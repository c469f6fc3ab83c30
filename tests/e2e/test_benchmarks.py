"""Every benchmark runs in its smallest form, so that a figure of the docs can be measured again."""

import json
import lzma
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from bench import has_cases, list_benchmarks

from support.llm import write_model

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
FOLDER, DATA = ROOT / "benchmarks", ROOT.parent / "shared" / "data"
PARTS = ("train", "test")
SECONDS = 900  # of one program, on a machine that does other things, too

# The smallest arguments of each program that has a command line of its own. In them {out} is a file
# to write, {folder} an empty folder, {data} the public sets, {chinese} those of private text,
# {model} a small language model, {texts} a dialogue, {pictures} a few and {trees} an ensemble.
OWN = {
    "audit/canaries": "--quick --data {data} --device cpu --out {out}",
    "audit/claims": "--quick --runs 1 --canaries 20 --skip-one-run --out {out}",
    "audit/language": "--quick --data {data} --device cpu --out {out}",
    "audit/membership": "--quick --out {out}",
    "audit/reconstruction": "--quick --data {data} --device cpu --out {out}",
    "inference/encoders": "--layers 1 --repeats 1 --no-peers --out {out}",
    "inference/sizes": "--quick",
    "federated/privacy": "--quick --data digits --out {out}",
    "llm/chat": "{data}/lm_stories260k --quick --tokens 3 --out {out}",
    "llm/gpu": "--quick --steps 3 --device cpu --out {out}",
    "llm/memory": "sealed permuted --layers 1 --folder {folder}",
    "llm/sealed": "--quick --shapes stories --tokens 2 --out {out}",
    "llm/sealed_apart": "stories --tokens 2",
    "llm/sealed_gpu": "--shape tiny --layers 1 2 --tokens 5 --device cpu --threads 1 --out {out}",
    "llm/sealed_perplexity": "{model} {texts} --rows 1 --tokens 3",
    "llm/sealed_tokens": "{model} --seconds 5 --limit 2",
    "text/private": "books --quick --data {chinese} --work {folder} --out {out} --device cpu",
    "text/extract": "--draws 2 --epochs 1",
    "text/beside_peers": "epsilon",
    "split/compressors": "--quick --data {data} --device cpu --tasks mnist --rows 300 --out {out}",
    "split/gradients": "--quick --data {data} --device cpu --tasks mnist --rows 300 --out {out}",
    "split/pictures": "--quick --rows 40 --batch 8 --ratios k=3 --data {pictures} --device cpu "
    "--out {out}",
    "split/protection": "--quick --data {data} --device cpu --tasks mnist --rows 300 --out {out}",
    "split/speed": "--quick --out {out}",
    "training/networks": "steps --quick --repeats 1 --models DNN1 --protocols sealed --out {out}",
    "verify/attack": "--quick --out {out}",
    "verify/features": "--quick --out {out}",
    "verify/public": "--quick --rows 2 --data {data}/tree_models --out {out}",
    "verify/scaling": "--quick --rows 5 --out {out}",
    "verify/stages": "--models {trees} --rows 2 --only presolve --out {out}",
    "verify/sweep": "--quick --rows 5 --out {out}",
    "verify/table": "--quick --rows 2 --out {out}",
    "verify/vote": "--quick --out {out}",
}
CASES = sorted(name for name in list_benchmarks(FOLDER) if has_cases(FOLDER / f"{name}.py"))


def test_every_program_has_a_smallest_form():
    assert {*list_benchmarks(FOLDER)} == {*OWN, *CASES}


@pytest.mark.parametrize("name", CASES)
def test_cases_run_once(name, tmp_path):
    out = tmp_path / "rows.json"
    run(name, "--quick", "--repeats", "1", "--out", str(out), folder=tmp_path)
    assert json.loads(out.read_text())


@pytest.mark.parametrize("name", OWN)
def test_a_program_runs_in_its_smallest_form(name, tmp_path):
    if ("{data}" in OWN[name] or "{chinese}" in OWN[name]) and not DATA.is_dir():
        pytest.skip("needs the public sets")
    if name == "verify/vote" and not (FOLDER / ".peers" / "vote").is_dir():
        pytest.skip("compares with VoTE, which has to be built first")
    places = {"out": tmp_path / "out.json", "folder": tmp_path, "data": DATA}
    if "{model}" in OWN[name]:
        places["model"], places["texts"] = write_model(tmp_path / "model"), tmp_path / "texts.xz"
        with lzma.open(places["texts"], "wt", encoding="utf-8") as file:
            file.write(json.dumps({"text": "a private answer to read"}) + "\n")
    if "{chinese}" in OWN[name]:
        (places := places | {"chinese": tmp_path / "chinese"})["chinese"].mkdir()
        for source in (*DATA.glob("zh_medical_*/*.xz"), DATA / "lm_minimind2_small"):
            (places["chinese"] / source.name).symlink_to(source)
        (places["chinese"] / "terms").mkdir()
        for of in ("disease", "drug", "symptom", "check", "physical_examination"):
            (places["chinese"] / "terms" / f"{of}.txt").write_text("治疗\n疼痛\n患者\n症状\n检查\n")
    if "{pictures}" in OWN[name]:
        places["pictures"] = tmp_path
        draw = np.random.default_rng(0)
        rows = {f"x_{part}": draw.integers(0, 256, (60, 32, 32, 3), np.uint8) for part in PARTS}
        rows |= {f"y_{part}": np.arange(60) % 10 for part in PARTS}
        np.savez(tmp_path / "cifar10-full.npz", **rows)
    if "{trees}" in OWN[name]:
        places["trees"] = tmp_path / "trees"
        run("verify/table", "--quick", "--save", str(places["trees"]), folder=tmp_path)
    printed = run(name, *(OWN[name].format(**places)).split(), folder=tmp_path)
    assert any(tmp_path.glob("out.*")) if "{out}" in OWN[name] else printed.strip()


def run(program, *arguments, folder):
    done = subprocess.run(
        [sys.executable, str(FOLDER / "run.py"), program, *arguments],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout
