"""Jobs of kind "text": what they promise before is what they promise after; texts stay here."""

import json
from dataclasses import asdict

import pytest

from support.jobs import tacit_says
from tacit.jobs.kind import Asked
from tacit.jobs.kinds import kind_of, load_job
from tacit.ring import Prg

UNIQUE = "药名绝密"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("text")
    prg = Prg(b"invented for job")
    lines = [
        {"text": f"我{int(prg.below(80, 1)) + 9}岁，头痛，吃{UNIQUE}。", "owner": f"p{n}"}
        for n in range(40)
    ]
    lines.append({"text": " ", "owner": "empty"})
    lines.append({"text": lines[0]["text"], "owner": "somebody else"})
    lines += [{"text": f"我{n}岁，头痛。", "owner": f"last {n}"} for n in range(10, 15)]
    text = "\n".join(json.dumps(one, ensure_ascii=False) for one in lines)
    (path / "texts.jsonl").write_text(text, encoding="utf-8")
    (path / "public.txt").write_text(
        "头痛的病人要休息，吃药。0123456789岁\n" * 20, encoding="utf-8"
    )
    (path / "terms.txt").write_text("头痛\n", encoding="utf-8")
    return path


def job(folder, name="job", *, train='method = "jft"', more="", texts="texts.jsonl"):
    path = folder / f"{name}.toml"
    if "rank" not in train:
        train += "\nrank = 2"
    path.write_text(
        f"""[job]
name = "{name}"
kind = "text"
out = "{folder}/out-{name}"
[model]
layers = 1
width = 16
vocabulary = 300
[data]
texts = "{folder / texts}"
public = "{folder}/public.txt"
terms = "{folder}/terms.txt"
length = 48
[train]
epochs = 1
public_epochs = 1
private_epochs = 1
{train}
[canaries]
count = 2
signs = 2
{more}
""",
        encoding="utf-8",
    )
    return path


def call(*words):
    code, out, err = tacit_says(*words)
    return code, out + err


def test_the_plan_says_what_the_run_will_promise_and_no_text_leaves(folder):
    path = job(folder)
    code, said = call("plan", path)
    assert code == 0, said
    assert "for adding or removing what a policy marks of one client" in said
    code, told = call("run", path)
    assert code == 0, told
    result = json.loads((folder / "out-job" / "result.json").read_text())
    claim, _ = result["claims"]
    assert f"ε = {claim['epsilon']:.3f} at δ = {claim['delta']:.3g}" in " ".join(said.split())
    assert any(
        "stands under several owners is promised less" in one for one in claim["assumptions"]
    )
    # How many do is a figure of the texts: a claim goes wherever the model goes.
    assert not any(char.isdigit() for one in claim["assumptions"] for char in one if "owner" in one)
    assert any("texts stand under more than one owner" in one for one in result["notes"])
    # A canary never seen is nobody's plaintext: what stands beside is the model without protection.
    sheet = result["sheets"][0]
    at = [head.lstrip("# ") for head in sheet["heads"]].index("exposure, digits")
    (shown,) = (one for one in result["utility"] if one["name"] == "exposure of canaries in digits")
    assert f"{shown['reference']:.4g}" == sheet["rows"][1][at]
    assert "no protection" in told
    assert "plaintext" not in told
    told_of = [leak["what"] for leak in result["leakage"]]
    assert "how many texts stand under more than one owner, exactly" in told_of
    planned = kind_of(load_job(path)).forecast(load_job(path), Asked()).leaks
    assert [asdict(one) for one in planned] == result["leakage"]
    figures = sum(len(row) - 2 for row in result["sheets"][0]["rows"])  # but name and ε
    assert len(told_of) == figures + 2
    assert "1 empty texts were left out." in result["notes"]
    titles = [sheet["title"] for sheet in result["sheets"]]
    assert titles == ["Beside each other", "What the policy sees", "What is marked"]
    names = [row[0] for row in result["sheets"][0]["rows"]]
    assert names == ["before", "no protection", "redacted, then DP"]
    page = (folder / "out-job" / "report.html").read_text()
    assert "<mark>" in page
    assert "not covered" in page
    for place in (page, json.dumps(result, ensure_ascii=False), told, said):
        assert UNIQUE not in place


def test_all_weights_and_whole_texts_and_no_protection_run_as_well(folder):
    for name, train in {
        "every": 'method = "all-dp"\nrank = 0\nunit = "text"',
        "none": 'method = "none"',
    }.items():
        path = job(folder, name, train=train)
        code, told = call("run", path)
        assert code == 0, told
        claim, _ = json.loads((folder / f"out-{name}" / "result.json").read_text())["claims"]
        assert claim["guarantee"] == (
            "no guarantee" if name == "none" else "(ε, δ)-differential privacy"
        )


def test_a_budget_outlives_the_chat(folder, capsys):
    more = "[decode]\nvoters = 8\nconversation = 12.0\ntotal = 20.0"
    path = job(folder, "vote", train='method = "vote"', more=more)
    code, told = call("run", path)
    assert code == 0, told
    out, spent = folder / "out-vote", []
    for _ in range(4):
        code, told = call("chat", "--model", out, "--prompt", "我", "--max-tokens", "30")
        assert code == 0, told
        counts = json.loads((out / "spent.json").read_text())["tacit budget"]
        spent.append(sum(float.fromhex(key) * n for key, n in counts.items()))
    assert spent == sorted(spent)
    assert spent[-1] <= 20.0
    code, told = call("chat", "--model", out, "--plain", "--prompt", "x")
    assert code == 2
    assert "answers from a budget" in capsys.readouterr().err
    for broken in ("", None):  # an empty file, and none, are no fresh budget
        (out / "spent.json").unlink() if broken is None else (out / "spent.json").write_text("")
        code, told = call("chat", "--model", out, "--prompt", "x")
        assert code == 2
        assert "spent is not known" in " ".join(told.split()).replace("was spent", "spent")
    (out / "decode.json").write_text("{}")
    code, told = call("chat", "--model", out, "--prompt", "x")
    assert code == 2
    assert "the whole result of a job of kind text" in told


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (b"\xff\xfe", "wanted UTF-8, byte 0 is not"),
        ('{"text": "绝密"}\n{"words": "绝密"}'.encode(), "line 2: wanted"),
        (b'{"text": 5, "owner": "a"}', "line 1: text and owner are strings"),
        ('{"text": "绝密", "owner": "a"}'.encode(), "wanted texts of two owners"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_and_not_quoted(folder, texts, said):
    (folder / "broken.jsonl").write_bytes(texts)
    code, told = call("run", job(folder, "broken", texts="broken.jsonl"))
    assert code == 2
    assert said in " ".join(told.split())
    assert "绝密" not in told


@pytest.mark.parametrize(
    ("train", "more", "said"),
    [
        ('method = "jft"', "[decode]\nvoters = 4", "decode"),
        ('method = "vote"', "", "decode"),
        ('method = "magic"', "", "method"),
        ('method = "jft"', '[policy]\npatterns = ["names"]', "a pattern is one of"),
    ],
)
def test_a_job_file_that_makes_no_sense_is_refused(folder, train, more, said):
    code, told = call("plan", job(folder, "wrong", train=train, more=more))
    assert code == 2
    assert said in told


def test_trainings_on_the_same_texts_are_counted_beside_them_and_refused(folder, tmp_path):
    """The attack: ask for the same texts again in a job with another name and folder."""
    texts = tmp_path / "again.jsonl"
    texts.write_text((folder / "texts.jsonl").read_text(encoding="utf-8"), encoding="utf-8")
    link = tmp_path / "link.jsonl"
    link.symlink_to(texts)
    more = '[report]\ncompare = "none"'
    how = 'method = "{}"\nepsilon = {}\nmost_epsilon = 3.2'
    codes, told = [], []
    for number, (method, epsilon) in enumerate((("jft", 2), ("all-dp", 2), ("jft", 1.5))):
        train = how.format(method, epsilon)
        named = link if number == 2 else texts
        path = job(folder, f"again{number}", train=train, more=more, texts=named)
        planned, foreseen = call("plan", path)
        code, said = call("run", path)
        assert planned == code  # what a run refuses, its plan refuses
        if code == 0:
            assert (
                f"again.jsonl.owners.spent.json, beside the texts, counts {number + 1}: ε = "
                in (" ".join(foreseen.split()))
            )
        codes.append(code)
        told.append(" ".join(said.split()))
    # Two of ε = 2 come to 2.9 at this δ, the square root of two; a third is refused.
    assert codes == [0, 0, 2], told
    assert "is allowed; 2 were entered before" in told[2]
    assert (
        len(json.loads((tmp_path / "again.jsonl.owners.spent.json").read_text())["tacit book"]) == 2
    )
    other = job(
        folder, "other", train=how.format("jft", 1) + '\nunit = "text"', more=more, texts=texts
    )
    code, said = call("run", other)
    assert code == 2
    assert "cannot be added up" in " ".join(said.split())
    result = json.loads((folder / "out-again1" / "result.json").read_text(encoding="utf-8"))
    assert "counts 2 trainings on them" in " ".join(result["notes"])


def test_the_figures_of_a_report_are_in_its_ledger(folder):
    result = json.loads((folder / "out-again0" / "result.json").read_text(encoding="utf-8"))
    shown = [leak["what"] for leak in result["leakage"]]
    assert sum("perplexity" in one for one in shown) == 2  # before and after
    assert [one["guarantee"] for one in result["claims"]][-1] == "no guarantee"


def test_a_limit_of_all_trainings_goes_with_no_open_model(folder):
    for train, more in (
        ('method = "none"\nmost_epsilon = 3', '[report]\ncompare = "none"'),
        ("most_epsilon = 3", ""),
    ):
        code, said = call("plan", job(folder, "open", train=train, more=more))
        assert code == 2
        assert "an open model has no ε" in said
