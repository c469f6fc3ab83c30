"""The page in a real browser: start a job, watch it, kill a party, go on, stop, compare, chat."""

import os
import re
import shutil
import signal
import subprocess
from contextlib import contextmanager

import pytest

from support.llm import write_model
from support.processes import Program

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium, which is not installed")
OPTIONS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync "
    "--disable-background-networking --disable-component-update"
)
WAIT_MS = 120_000


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as engine:
        started = engine.chromium.launch(executable_path=CHROMIUM, args=OPTIONS.split())
        yield started
        started.close()


@contextmanager
def serving(folder):
    process = Program("studio", "out", folder=folder)
    for line in process.stdout:
        if found := re.match("Open (.*)", line):
            break
    yield found[1]
    process.terminate()
    process.communicate(timeout=30)


@pytest.fixture
def studio(tmp_path):
    with serving(tmp_path) as address:
        yield address


@pytest.fixture
def page(browser, studio):
    with opened_at(browser, studio) as opened:
        yield opened


@contextmanager
def opened_at(browser, address):
    context = browser.new_context(locale="en-US")
    context.set_default_timeout(WAIT_MS)
    opened, problems = context.new_page(), []
    opened.on("console", lambda message: problems.append(message.text))
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.goto(address)
    opened.wait_for_url(lambda now: "token" not in now)
    yield opened
    context.close()
    assert problems == []  # nothing of the page was refused by its own policy


def begin(page, kind, **fields):
    page.goto(f"{page.url.rpartition('/')[0]}/start?kind={kind}")
    for key, text in fields.items():
        page.locator(f'[id="{key.replace("__", ".")}"]').fill(text)
    page.get_by_role("button", name="Check and forecast").last.click()
    page.get_by_role("button", name="Run it").click()
    page.wait_for_url("**/watch?run=*")


def wait_for(page, text):
    page.locator(".status", has_text=text).wait_for()


def parties_of(page):
    """Return the processes of a run by party, as the page's machine knows them."""
    shown = subprocess.run(["ps", "-ww", "-eo", "pid=,args="], capture_output=True, text=True)
    run = re.search(r"run=([\w-]+)", page.url)[1]
    lines = [line for line in shown.stdout.splitlines() if f"{run}/job.toml --as" in line]
    return {re.search(r"--as ([\w-]+)", line)[1]: int(line.split()[0]) for line in lines}


def test_a_job_is_started_watched_reloaded_and_read(page):
    begin(page, "infer")
    page.reload()  # in the middle of it
    second = page.context.new_page()
    second.goto(page.url)
    wait_for(page, "Done")
    wait_for(second, "Done")
    second.close()
    assert "3 / 3" in page.locator("#live").inner_text()
    assert "hospital" in page.locator("section", has_text="Bytes on each link").inner_text()
    page.get_by_role("link", name="Read the result").click()
    page.locator("h1", has_text="predicted classes").wait_for()
    page.get_by_role("link", name="Results", exact=True).first.click()
    page.get_by_label("Search").fill("sealed")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="demo").wait_for()


@pytest.mark.slow
def test_a_party_that_died_is_named_and_the_job_goes_on_stops_and_is_compared(page):
    begin(page, "infer")
    wait_for(page, "Done")
    begin(page, "train", training__epochs="60")
    page.locator("article .sentence", has_text="training").first.wait_for()
    page.locator("pre", has_text="step 24").first.wait_for(state="attached")
    os.kill(parties_of(page)["south"], signal.SIGKILL)
    wait_for(page, "Failed: party south")
    assert "killed by signal 9" in page.locator(".status").inner_text()
    page.get_by_role("button", name="Go on where it stopped").click()
    page.locator("pre", has_text="resumed").first.wait_for(state="attached")
    page.get_by_role("button", name="Stop").click()
    wait_for(page, "Stopped")
    begin(page, "infer", job__name="again", job__out="out/again")
    wait_for(page, "Done")
    page.get_by_role("link", name="Results", exact=True).click()
    for name in ("demo", "again"):
        page.get_by_label(f"Choose {name}").check()
    page.get_by_role("button", name="Compare the chosen ones").click()
    page.locator("h1", has_text="Side by side").wait_for()
    assert page.locator("tr.differs").count() > 0
    assert "97.66" in page.locator("table.sides").inner_text()


@pytest.mark.slow
def test_a_job_outlives_the_page_and_its_server(browser, tmp_path):
    with serving(tmp_path) as address, opened_at(browser, address) as page:
        begin(page, "train", training__epochs="60")
        page.locator("article .sentence", has_text="training").first.wait_for()
        parties = parties_of(page)
    assert len(parties) == 3
    for process in parties.values():
        os.kill(process, 0)
    with serving(tmp_path) as address, opened_at(browser, address) as page:
        page.get_by_role("link", name="Watch").click()
        page.get_by_role("link", name="train-digits").click()
        wait_for(page, "Running")
        page.get_by_role("button", name="Stop").click()
        wait_for(page, "Stopped")
    assert not (tmp_path / "out" / "train-digits").exists()


@pytest.mark.slow
def test_a_conversation_shows_what_each_side_learned(page, tmp_path):
    model = write_model(tmp_path / "tiny")
    page.goto(f"{page.url.rpartition('/')[0]}/chat")
    page.locator("#chat-model").fill(str(model))
    page.locator("#chat-tokens").fill("12")
    page.locator("input[value=permuted]").check()
    page.get_by_role("button", name="Show what is promised").click()
    assert "no guarantee" in page.locator("section", has_text="What is promised").inner_text()
    page.get_by_role("button", name="Start the conversation").click()
    page.locator(".status.good").wait_for()
    for number, text in enumerate(("hello", "and you")):
        page.get_by_label("Say something").fill(text)
        page.get_by_role("button", name="Send").click()
        page.locator(".receipt").nth(number).wait_for()
    told = page.locator(".receipt").last.inner_text()
    assert "tokens/s" in told
    assert "user learned:" in told
    assert "owner learned:" in told
    page.reload()
    assert page.locator(".turn-you").all_inner_texts() == ["hello", "and you"]
    page.get_by_role("button", name="End the conversation").click()
    page.wait_for_url("**/chat")
    assert page.get_by_text("Open conversations").count() == 0
