"""The page of ``tacit studio``, asked without a browser: who may, what it shows and refuses."""

import ast
import html
import json
import multiprocessing
import os
import re
import resource
import sys
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

import tacit
from support.jobs import make_result, tacit_says
from tacit import report
from tacit.cli.journal import Journal
from tacit.cli.studio import index as index_module
from tacit.cli.studio import talks as talks_module
from tacit.cli.studio import words as words_module
from tacit.cli.studio.app import make_app
from tacit.cli.studio.guard import COOKIE, Keys
from tacit.cli.studio.index import Index, Summary, list_data, spent_on
from tacit.errors import PartyError
from tacit.jobs.kinds import KINDS
from tacit.report.words import STAGES
from tacit.result import Claim, Cost, Curve, Leak, Metric, PartyReport, Sheet, Traffic

testclient = pytest.importorskip("starlette.testclient")

PORT = 8099
ORIGIN = f"http://127.0.0.1:{PORT}"
EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>"
KEYS = Keys(path="/place/", token="t" * 32, cookie="c" * 32)
RESULT = make_result(
    kind="federated",
    name="wards",
    protocol="masked",
    parties=(
        PartyReport(
            name="server",
            role="adds",
            host="h",
            seconds=1.0,
            cpu_seconds=1.0,
            peak_memory_bytes=1,
            spans=(),
        ),
    ),
    metered=Cost(traffic=(), offline_rounds=0, online_rounds=7),
    leakage=(Leak(to="server", what="sums", why="to add", kind="protocol", elements=3),),
    claims=(
        Claim(
            subject="clients",
            guarantee="(ε, δ)-DP",
            assumptions=(),
            epsilon=2.0,
            delta=1e-5,
            relation="replacing one client",
        ),
    ),
    utility=(Metric(name="accuracy", value=0.5, unit="fraction"),),
)


def put(folder, result, job=None):
    folder.mkdir(parents=True)
    report.save(result, folder / "result.json")
    if job is not None:
        (folder / "job.toml").write_text(job)


@pytest.fixture
def client(tmp_path):
    made = testclient.TestClient(
        make_app(tmp_path / "out", KEYS, PORT), base_url=ORIGIN, follow_redirects=False
    )
    made.headers["origin"] = ORIGIN
    made.cookies.set(COOKIE, KEYS.cookie)
    (tmp_path / "out").mkdir()
    return made


def get(client, page):
    answer = client.get(f"/place/{page}")
    assert answer.status_code == 200, answer.text
    return answer.text


# Who may


PAGES = ("", "result?run=a", "compare", "ledger", "start", "start?kind=infer", "watch", "studio.js")


def test_nothing_is_reachable_without_the_cookie(client):
    client.cookies.clear()
    for page in (*PAGES, "chat", "language?to=zh", "report.css"):
        assert client.get(f"/place/{page}").status_code == 403, page
    assert client.post("/place/act", data={}).status_code == 403
    assert client.get("/place/?token=" + "x" * 32).status_code == 403
    assert client.get("/").status_code == 404


def test_the_token_of_the_address_is_changed_for_a_cookie_and_leaves_the_address(client):
    client.cookies.clear()
    answer = client.get(f"/place/?token={KEYS.token}")
    assert 'content="0;url=./"' in answer.text
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "path=/place/" in cookie  # so other ports of this host are never sent it
    assert KEYS.token not in answer.headers["set-cookie"] + answer.text


@pytest.mark.parametrize("host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1:1", ""])
def test_a_name_that_was_rebound_to_this_machine_is_refused(client, host):
    assert client.get("/place/", headers={"host": host}).status_code == 421


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:1", f"https://127.0.0.1:{PORT}"]
)
def test_a_form_of_another_page_changes_nothing(client, origin, tmp_path):
    form = {"text": '[job]\nname = "x"\nkind = "infer"', "do": "run"}
    for page in ("start?kind=infer", "act"):
        answer = client.post(f"/place/{page}", data=form, headers={"origin": origin})
        assert answer.status_code == 403
    del client.headers["origin"]
    assert client.post("/place/act", data=form).status_code == 403
    assert not (tmp_path / "out" / ".studio").exists()


def test_every_answer_forbids_scripts_of_others_and_frames(client):
    for page in PAGES:
        headers = client.get(f"/place/{page}").headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "name", ["../secret", "/etc", "..", ".studio", "%2e%2e/secret", "a\0b", "n" * 300]
)
def test_a_name_is_never_a_path(client, tmp_path, name):
    put(tmp_path / "secret", replace(RESULT, name="hush"))
    put(tmp_path / "out" / ".studio", replace(RESULT, name="hush"))
    for page in ("result", "watch"):
        answer = client.get(f"/place/{page}", params={"run": name})
        assert answer.status_code == 400
        assert "hush" not in answer.text
    answer = client.post("/place/act", data={"run": name, "do": "stop"})
    assert answer.status_code == 400


def test_only_results_are_served_no_other_file_of_their_folder(client, tmp_path):
    put(tmp_path / "out" / "a", RESULT)
    (tmp_path / "out" / "a" / "predictions.csv").write_text("row,prediction\n1,secretclass\n")
    for page in ("a/predictions.csv", "result?run=a/predictions.csv", "predictions.csv"):
        answer = client.get(f"/place/{page}")
        assert answer.status_code in (400, 404)
        assert "secretclass" not in answer.text
    assert "secretclass" not in get(client, "result?run=a")


class Scripts(HTMLParser):
    """Collects what would run."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag == "script" and given.get("src") != "studio.js":
            self.found.append(tag)
        self.found += [name for name in given if name.startswith("on")]
        self.found += [value for value in given.values() if (value or "").startswith("javascript:")]


def runs(text):
    parser = Scripts()
    parser.feed(text)
    return parser.found


def test_texts_of_results_and_journals_are_never_markup(client, tmp_path):
    evil = replace(
        RESULT,
        name=EVIL,
        kind=EVIL,
        protocol=EVIL,
        notes=(EVIL,),
        curves=(Curve(title=EVIL, x_label=EVIL, y_label="y", name=EVIL, points=((0, 1),)),),
        sheets=(Sheet(title=EVIL, heads=(EVIL,), rows=((EVIL,),)),),
        utility=(Metric(name=EVIL, value=1.0, unit=EVIL, note=EVIL),),
        claims=(replace(RESULT.claims[0], subject=EVIL, guarantee=EVIL, relation=EVIL),),
        leakage=(replace(RESULT.leakage[0], to=EVIL, what=EVIL, why=EVIL),),
    )
    put(tmp_path / "out" / "<b onclick=x>", evil, job=f'[data]\nset = "{EVIL}"\n')
    put(tmp_path / "out" / "b", evil)
    home = tmp_path / "out" / ".studio" / "run"
    home.mkdir(parents=True)
    (home / "job.toml").write_text(EVIL)
    journal = Journal(home / "progress.jsonl")
    journal.write("start", job=EVIL, kind=EVIL, parties={EVIL: EVIL})
    journal.write("stage", party=EVIL, stage=f"– {EVIL}", done=1, total=2, sent={EVIL: 3}, rounds=1)
    journal.write("said", text=EVIL)
    journal.write("end", code=4, message=EVIL, party=EVIL)
    journal.close()
    for page in (
        "",
        "result?run=%3Cb%20onclick%3Dx%3E",
        "result?run=b&part=report",
        "compare?run=b&run=%3Cb%20onclick%3Dx%3E",
        "ledger",
        "watch",
        "watch?run=run",
        "watch?run=run&part=live",
    ):
        text = get(client, page)
        assert runs(text) == [], page
        assert html.escape(EVIL) in text or "onclick" in text, page
    posted = client.post("/place/start?kind=infer", data={"text": f'[job]\nname = "{EVIL}"'})
    assert runs(posted.text) == []
    assert html.escape(EVIL) in posted.text


# Start


class Fields(HTMLParser):
    """Collects the fields of the form for a job as a browser would send them."""

    def __init__(self):
        super().__init__()
        self.sent, self.labels, self.named = [], set(), {}
        self._form, self._select, self._area = "", None, None

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag == "form":
            self._form = given.get("class", "")
        if tag == "label":
            self.labels.add(given.get("for"))
        is_shown = given.get("type") != "hidden" and "hidden" not in given
        if tag in ("input", "select", "textarea") and is_shown:
            self.named[given.get("id") or given["name"]] = "aria-label" in given
        if self._form != "job":
            return
        if tag == "input":
            self.sent.append((given["name"], given.get("value", "")))
        elif tag == "select":
            self._select = given["name"]
        elif tag == "option" and "selected" in given and self._select:
            self.sent.append((self._select, given["value"]))
        elif tag == "textarea":
            self._area = given["name"]
            self.sent.append((self._area, ""))

    def handle_data(self, data):
        if self._area:
            self.sent[-1] = (self._area, self.sent[-1][1] + data)

    def handle_endtag(self, tag):
        if tag == "form":
            self._form = ""
        if tag == "select":
            self._select = None
        if tag == "textarea":
            self._area = None


def fields_of(text):
    parser = Fields()
    parser.feed(text)
    return parser


def post(client, page, pairs):
    from urllib.parse import urlencode

    headers = {"content-type": "application/x-www-form-urlencoded"}
    return client.post(f"/place/{page}", content=urlencode(pairs), headers=headers)


EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "jobs").glob("*.toml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_form_sends_back_the_job_that_filled_it(client, path, tmp_path):
    import tomllib

    raw = tomllib.loads(path.read_text())
    kind = raw["job"]["kind"]
    text = get(client, f"start?kind={kind}&example={path.stem}")
    sent = [*fields_of(text).sent, ("do", "download")]
    answer = post(client, f"start?kind={kind}", sent)
    made = tomllib.loads(answer.text)
    raw["job"]["out"] = str(tmp_path / "out" / raw["job"]["name"])
    assert made == raw
    assert answer.headers["content-disposition"].startswith("attachment")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_form_whose_fields_have_labels(client, kind):
    text = get(client, f"start?kind={kind}")
    form = fields_of(text)
    assert form.sent
    assert [name for name, has in form.named.items() if not has and name not in form.labels] == []
    assert text.count("<main") == text.count("<h1") == 1
    assert 'aria-label="Pages"' in text


def test_what_the_reader_of_job_files_refuses_stands_at_its_field(client):
    text = get(client, "start?kind=infer")
    sent = {**dict(fields_of(text).sent), "data.bound": "-1", "protocol.dealer": "nobody"}
    parties = [("parties.*", name) for name in ("hospital", "lab", "dealer")]
    del sent["parties.*"]
    answer = post(client, "start?kind=infer", [*sent.items(), *parties])
    assert "wanted a number greater than 0, got -1" in html.unescape(answer.text)
    assert re.search(r'id="data\.bound"[^>]*aria-invalid="true"', answer.text)
    assert "Run it" not in answer.text


def test_a_job_is_shown_with_its_forecast_before_it_runs(client, tmp_path):
    text = get(client, "start?kind=infer")
    answer = post(client, "start?kind=infer", fields_of(text).sent).text
    for words in ("45.7", "Online rounds", "How long it takes on a network", "predicted classes"):
        assert words in answer, words
    assert "no guarantee" in answer
    assert not (tmp_path / "out" / ".studio").exists()


def test_names_of_parties_are_added_and_removed(client):
    sent = fields_of(get(client, "start?kind=infer")).sent
    more = post(client, "start?kind=infer", [*sent, ("add:parties", "ward"), ("add", "parties")])
    assert ("parties.*", "ward") in fields_of(more.text).sent
    sent = fields_of(more.text).sent
    less = post(client, "start?kind=infer", [*sent, ("remove", "parties.lab")])
    names = [value for name, value in fields_of(less.text).sent if name == "parties.*"]
    assert names == ["hospital", "dealer", "ward"]


@pytest.mark.parametrize("number", ["9" * 5000, "-1", "0", "x", "²", "1e9"])
def test_numbers_that_are_none_are_as_if_they_were_not_there(client, number):
    assert client.get("/place/", params={"page": number}).status_code == 200
    text = get(client, "start?kind=infer")
    sent = [*fields_of(text).sent, ("ask.rows", number), ("data.bound", number)]
    assert post(client, "start?kind=infer", sent).status_code == 200


# Watch


def test_a_journal_becomes_a_page_and_a_dead_party_is_named(client, tmp_path):
    home = tmp_path / "out" / ".studio" / "run"
    home.mkdir(parents=True)
    (home / "job.toml").write_text("")
    journal = Journal(home / "progress.jsonl")
    journal.write("start", job="wards", kind="train", parties={"lab": "owner", "ward": "owner"})
    for party in ("lab", "ward"):
        told = "– step 50: loss 0.500, accuracy 80.0 %"
        event = {"event": "stage", "stage": told, "done": 50, "total": 100}
        journal.take(party, {**event, "sent": {"lab": 5_000_000}, "rounds": 77})
    text = get(client, "watch?run=run&part=live")
    assert 'data-over="false"' in text
    assert "Running" in text
    for words in ("80", "5\u00a0MB", "77", "step 50: loss 0.500"):
        assert words in text, words
    journal.write("end", code=4, message="party 'ward': killed by signal 9", party="ward")
    journal.close()
    text = get(client, "watch?run=run&part=live")
    assert "Failed: party ward" in text
    assert "killed by signal 9" in text
    assert "Go on where it stopped" in text
    assert 'data-over="true"' in text


def test_a_run_that_died_without_a_word_is_said_to(client, tmp_path):
    home = tmp_path / "out" / ".studio" / "run"
    home.mkdir(parents=True)
    (home / "job.toml").write_text("")
    (home / "progress.jsonl").write_text('{"event": "open", "pid": 1}\nnot json\n[]\n{"event": "st')
    assert "Ended without a word" in get(client, "watch?run=run&part=live")


def test_a_journal_is_private_and_has_one_writer(tmp_path):
    from tacit.errors import InputError

    journal = Journal(tmp_path / "p")
    with pytest.raises(InputError, match="another run writes"):
        Journal(tmp_path / "p")
    journal.close()
    assert os.stat(tmp_path / "p").st_mode & 0o077 == 0
    assert json.loads((tmp_path / "p").read_text())["pid"] == os.getpid()


# Read


def test_results_are_listed_found_and_broken_ones_said_to_be(client, tmp_path):
    put(tmp_path / "out" / "one", RESULT)
    put(tmp_path / "out" / "two", replace(RESULT, protocol="shuffled"))
    put(tmp_path / "out" / "deep" / "three", RESULT)
    (tmp_path / "out" / "broken").mkdir()
    (tmp_path / "out" / "broken" / "result.json").write_text("{")
    text = get(client, "")
    assert all(f">{name}<" in text for name in ("one", "two", "deep/three"))
    assert "cannot be read" in text
    found = get(client, "?q=SHUFFLED+wards")
    assert ">two<" in found
    assert ">one<" not in found


def odd_name(out):
    put(out / os.fsdecode(b"odd\xff"), RESULT)


def odd_result(make):
    def plant(out):
        (out / "odd").mkdir()
        make(out / "odd" / "result.json")

    return plant


def odd_job(make):
    def plant(out):
        put(out / "odd", RESULT)
        make(out / "odd" / "job.toml")

    return plant


def endless(path):
    path.symlink_to("/dev/zero")


def too_large(path):
    path.touch()
    os.truncate(path, 1 << 30)


def deep(path):
    path.write_text("a=" + "[" * 100_000)


def dotted(path):
    path.write_text("[data]\n" + ".".join("a" * 100_000) + ' = "x"\n')


def odd_run(file, make):
    def plant(out):
        home = out / ".studio" / "odd"
        home.mkdir(parents=True)
        (home / "job.toml").write_text("")
        make(home / file)

    return plant


def odd_journal(path):
    numbers = ("-1", "NaN", "1e400", "1e300", f"1{400 * '0'}", 100_000 * "[")
    lines = [f'{{"event": "open", "at": {one}, "pid": {one}}}' for one in numbers]
    lines += [f'{{"event": "end", "at": {one}, "code": {one}}}' for one in numbers]
    path.write_text("\n".join(lines) + "\n")


def odd_cache(path):
    good = dict.fromkeys(Summary.__dataclass_fields__, 7) | {"name": "good", "data": []}
    stat = (path.parent.parent / "good" / "result.json").stat()
    good["stamp"] = f"{stat.st_mtime_ns}-{stat.st_size}-{tacit.__version__}"
    path.write_text(json.dumps([good]))


def to_a_file_of_the_user(path):
    (path.parent.parent.parent / "diary").write_text("mine")
    path.symlink_to(path.parent.parent.parent / "diary")


def to_a_folder_of_the_user(out):
    (out.parent / "diary").write_text("mine")
    (out.parent / "notes").mkdir()
    (out.parent / "notes" / "index.json").hardlink_to(out.parent / "diary")
    (out / ".studio").symlink_to(out.parent / "notes")


def odd_index(make):
    def plant(out):
        (out / ".studio").mkdir()
        make(out / ".studio" / "index.json")

    return plant


ODD = {
    "a name that is not UTF-8": odd_name,
    "a pipe for a result": odd_result(os.mkfifo),
    "an endless result": odd_result(endless),
    "a very large result": odd_result(too_large),
    "a pipe for a job": odd_job(os.mkfifo),
    "an endless job": odd_job(endless),
    "a deep job": odd_job(deep),
    "a job deep by dots": odd_job(dotted),
    "a pipe for a journal": odd_run("progress.jsonl", os.mkfifo),
    "an endless journal": odd_run("progress.jsonl", endless),
    "odd numbers in a journal": odd_run("progress.jsonl", odd_journal),
    "a pipe for a log": odd_run("log.txt", os.mkfifo),
    "a pipe for options": odd_run("options.json", os.mkfifo),
    "a run of an odd name": lambda out: put(out / ".studio" / "odd name", RESULT, job=""),
    "a pipe for the index": odd_index(os.mkfifo),
    "a link for the index": odd_index(to_a_file_of_the_user),
    "a link for the folder of the index": to_a_folder_of_the_user,
    "an index of other types": odd_index(odd_cache),
}


@pytest.mark.parametrize("what", ODD)
def test_whatever_lies_in_a_folder_that_others_made_the_good_result_is_shown(what, tmp_path):
    """In a process of its own, which may neither hang nor take memory without end."""
    put(tmp_path / "out" / "good", RESULT, job='[data]\nset = "digits"\n')
    ODD[what](tmp_path / "out")
    asked = multiprocessing.get_context("fork").Process(target=_ask_all, args=(tmp_path / "out",))
    asked.start()
    asked.join(30)
    ended, code = asked.exitcode is not None, asked.exitcode
    asked.kill()
    asked.join()
    assert (ended, code) == (True, 0)
    diary = tmp_path / "diary"
    assert not diary.exists() or diary.read_text() == "mine"


def _ask_all(folder):
    """Ask for all pages, with 1 GB more memory than there is now."""
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + (1 << 30),) * 2)
    client = testclient.TestClient(
        make_app(folder, KEYS, PORT), base_url=ORIGIN, follow_redirects=False
    )
    client.cookies.set(COOKIE, KEYS.cookie)
    for page in ("", "result?run=good", "compare?run=good&run=odd", "ledger?data=digits"):
        text = get(client, page)
        assert ">good<" in text or "wards" in text, page
    assert "odd" not in get(client, "watch") or get(client, "watch?run=odd")
    shown = get(client, "")
    if (folder / "odd" / "result.json").exists() and not (folder / "odd" / "job.toml").exists():
        assert "cannot be read" in shown


def test_a_text_that_nests_too_deeply_is_said_to(client):
    for text in ("a=" + "[" * 100_000, ".".join("a" * 100_000) + " = 1"):
        for do in ("check", "download", "run"):
            form = {"text": text, "do": do}
            answer = client.post("/place/start?kind=infer", data=form)
            assert answer.status_code == 200
            assert "nested too deeply" in answer.text


def test_a_thousand_results_are_read_once(tmp_path, monkeypatch):
    text = report.to_json(RESULT)
    for number in range(1000):
        (tmp_path / f"{number:04}").mkdir()
        (tmp_path / f"{number:04}" / "result.json").write_text(text)
    index = Index(tmp_path, tmp_path / ".studio" / "index.json")
    found, left = index.refresh(0.0)
    assert (found, left) == ([], 1000)  # a page does not wait
    assert len(index.refresh(600.0)[0]) == 1000
    loads = []
    monkeypatch.setattr(index_module.report, "load", lambda path: loads.append(path) or RESULT)
    again = Index(tmp_path, tmp_path / ".studio" / "index.json")
    assert len(again.refresh(0.0)[0]) == 1000
    changed = tmp_path / "0007" / "result.json"
    os.utime(changed, ns=(time.time_ns(), time.time_ns() + 1))
    again.refresh(600.0)
    assert loads == [changed]
    (tmp_path / ".studio" / "index.json").write_text('[{"name": 3}]')
    assert Index(tmp_path, tmp_path / ".studio" / "index.json").refresh(0.0)[1] == 1000


def test_what_differs_between_results_is_marked(client, tmp_path):
    put(tmp_path / "out" / "one", RESULT)
    other = replace(
        RESULT,
        utility=(Metric(name="accuracy", value=0.75, unit="fraction", low=0.7, high=0.8),),
        metered=replace(
            RESULT.metered,
            traffic=(
                Traffic(sender="a", receiver="b", phase="online", messages=1, payload_bytes=10),
            ),
        ),
    )
    put(tmp_path / "out" / "two", other)
    text = get(client, "compare?run=one&run=two&run=gone")
    marked = re.findall(r'<tr class="differs"><th scope="row">(.*?)</th>', text)
    names = [re.sub("<.*?>", "", one) for one in marked]
    assert names == ["≠ Sent", "≠ accuracy"]
    assert "75" in text
    assert "no such result: gone" in text


def test_the_ledger_adds_up_under_one_relation_and_says_what_no_sum_bounds(client, tmp_path):
    job = '[data]\nset = "digits"\n'
    put(tmp_path / "out" / "one", RESULT, job)
    put(tmp_path / "out" / "two", replace(RESULT, created="2026-02-02T03:04:05+00:00"), job)
    record = replace(RESULT.claims[0], relation="replacing one record", epsilon=1.0)
    put(tmp_path / "out" / "three", replace(RESULT, claims=(record,)), job)
    put(tmp_path / "out" / "bare", replace(RESULT, claims=()), job)
    put(tmp_path / "out" / "game", replace(RESULT, kind="audit"), job)
    put(tmp_path / "out" / "other", RESULT, '[data]\n[data.owners.x]\nfile = "x.csv"\n')
    put(tmp_path / "out" / "words", RESULT, '[data]\ntexts = "t.jsonl"\n')
    found, _ = Index(tmp_path / "out", tmp_path / "i").refresh(60.0)
    groups = list_data(found)
    assert set(groups) == {"digits", "x.csv", "t.jsonl"}
    spent = {one.relation: one for one in spent_on(groups["digits"])}
    assert spent["replacing one client"].epsilon == 4.0
    assert spent["replacing one client"].delta == pytest.approx(2e-5)
    assert [one.name for one in spent["replacing one client"].runs] == ["one", "two"]
    assert spent["replacing one record"].epsilon == 1.0
    text = get(client, "ledger?data=digits&budget=3")
    assert "The budget is exceeded." in text
    assert "bare</a>" in text
    assert "game" not in text


def test_the_command_line_has_the_ledger_too(tmp_path):
    put(tmp_path / "out" / "one", RESULT, '[data]\nset = "digits"\n')
    put(tmp_path / "out" / "bare", replace(RESULT, claims=()), '[data]\nset = "digits"\n')
    code, said, _ = tacit_says("runs", "--ledger", tmp_path / "out")
    assert code == 0
    assert re.search(r"digits +replacing one client +1 +2 ", said)
    assert "no sum bounds these" in said
    assert tacit_says("runs", "--ledger", tmp_path / "nowhere")[0] == 2


# Words and looks


STUDIO = Path(words_module.__file__).parent


def spoken():
    """Find every text that the page says through its catalogue."""
    for path in STUDIO.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and node.args:
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if name in ("words", "_words"):
                    yield from (
                        one.value
                        for one in ast.walk(node.args[0])
                        if isinstance(one, ast.Constant) and isinstance(one.value, str)
                    )


def test_everything_is_said_in_chinese_too():
    from tacit.cli.commands.examples import WANTS
    from tacit.cli.studio.page import PAGES

    chinese = words_module._catalogue("zh")
    said = {*spoken(), *STAGES.values(), *(text for pair in WANTS.values() for text in pair)}
    said |= {name for _, name in PAGES}
    assert sorted(one for one in said - chinese.keys() if re.search("[A-Za-z]{2}", one)) == []
    for english, text in chinese.items():
        assert sorted(re.findall(r"{\w+}", english)) == sorted(re.findall(r"{\w+}", text))


def test_the_language_is_the_browsers_until_it_is_switched(client):
    text = client.get("/place/", headers={"accept-language": "zh-CN,zh;q=0.9,en;q=0.8"}).text
    assert "还没有结果" in text
    assert 'lang="zh-Hans"' in text
    back = {"referer": f"{ORIGIN}/place/watch?run=x", "accept-language": "zh"}
    switched = client.get("/place/language?to=en", headers=back)
    assert switched.headers["location"] == "./watch?run=x"
    away = client.get(
        "/place/language?to=en", headers={"referer": f"{ORIGIN}/place///evil.example"}
    )
    assert away.headers["location"] == ".///evil.example"  # below this page
    for other in ("http://evil.example/place/x", "javascript:alert(1)", f"{ORIGIN}/x"):
        away = client.get("/place/language?to=en", headers={"referer": other})
        assert away.headers["location"] == "./"
    client.cookies.set("language", "en")
    text = client.get("/place/", headers={"accept-language": "zh"}).text
    assert "There is no result here yet." in text


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_texts_stand_out_from_what_is_behind_them_by_day_and_by_night():
    css = (Path(report.__file__).parent / "style.css").read_text()
    schemes = [
        dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))
        for block in re.findall(r":root {(.*?)}", css, re.S)[:2]
    ]
    pairs = [
        *(("ink", "page"), ("ink", "card"), ("soft", "page"), ("soft", "card"), ("accent", "page")),
        *(("accent", "card"), ("accent", "accent-soft"), ("card", "accent"), ("ink", "warn-soft")),
        *(("bad", "bad-soft"), ("bad", "card"), ("good", "good-soft"), ("ink", "bad-soft")),
        *(("soft", "quiet-soft"), ("ink", "quiet-soft"), ("accent", "good-soft")),
    ]
    for scheme in schemes:
        for text, behind in pairs:
            assert contrast(scheme[text], scheme[behind]) >= 4.5, (text, behind)


def test_words_go_to_the_chat_s_own_endpoint_whatever_a_line_of_it_says(monkeypatch):
    """A line of a chat quotes what the owner says; on 0.2 it could name where the words go."""
    said = PartyError("owner", "listening on http://198.51.100.7:80/v1; not here", said_by="owner")
    code = (
        "import sys; words, where = sys.argv[1], sys.argv[-1]\n"
        "print('user   ', words, flush=True); print(words, flush=True)\n"
        "print(f'listening on http://{where}/v1; stop with Ctrl-C', flush=True)\n"
        "print('user   ', words, flush=True); sys.stdin.read()"
    )

    def command(_, *options):
        return [sys.executable, "-c", code, f"{said}; meeting again", *options]

    monkeypatch.setattr(talks_module, "python_command", command)
    talk = talks_module.Talk([], "a talk")
    ours = f"http://{talk.options[-1]}/v1"
    deadline = time.monotonic() + 60
    while talk.is_alive and time.monotonic() < deadline:  # it ends when all was said
        time.sleep(0.01)
    while len(talk.lines) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sum("198.51.100.7" in line for line in talk.lines) == 3
    assert talk.endpoint == ours
