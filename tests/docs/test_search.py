"""The search of the site in a real browser: Chinese words, several words, what comes first."""

import shutil
import subprocess

import pytest

from docs.follow import ROOT

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
MKDOCS = ROOT / ".venv" / "docs" / "bin" / "python"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium, which is not installed"),
    pytest.mark.skipif(not MKDOCS.exists(), reason="needs MkDocs: make docs installs it"),
]
OPTIONS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync "
    "--disable-background-networking --disable-component-update"
)
BOX = "input[data-md-component=search-query]"


@pytest.fixture(scope="module")
def browser():
    subprocess.run([MKDOCS, ROOT / "docs" / "website" / "build.py"], check=True)
    with playwright.sync_playwright() as engine:
        started = engine.chromium.launch(executable_path=CHROMIUM, args=OPTIONS.split())
        yield started
        started.close()


@pytest.fixture
def search(browser):
    """Return what types a query into a page of the site and reads the results."""
    opened = browser.new_page()
    opened.set_default_timeout(60_000)

    def ask(query, start="index.html"):
        opened.goto(f"file://{ROOT}/out/docs/site/{start}")
        opened.click(BOX)
        opened.keyboard.type(query)  # Chinese comes without a key, as from an input method
        opened.wait_for_selector(".md-search-result__item")
        links = opened.eval_on_selector_all(
            ".md-search-result__item > a", "all => all.map(one => [one.href, one.innerText])"
        )
        return [(link.partition("/site/")[2].partition("?")[0], text) for link, text in links]

    yield ask
    opened.close()


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ("训练", "tutorial/private-training"),
        ("联邦学习", "tutorial/federated"),
        ("差分隐私", "explanation/differential-privacy"),
        ("审计", "tutorial/audit"),
        ("拆分学习", "tutorial/split-learning"),
        ("密钥", "explanation/links"),
    ],
)
def test_a_chinese_word_finds_its_page(search, query, page):
    first = [link for link, _ in search(query, "zh/index.html")[:4]]
    assert any(link.startswith(f"zh/{page}") for link in first), first


def test_no_word_of_a_chinese_query_counts_as_missing_where_it_stands(search):
    links = dict(search("差分隐私", "zh/index.html"))
    (text,) = (text for link, text in links.items() if "differential-privacy" in link)
    assert "差分" not in text.partition("缺少")[2]


def test_the_job_file_comes_before_the_changelog(search):
    links = [link.partition("#")[0] for link, _ in search("scale")]
    assert links[0] == "reference/job-file.html"
    assert "project/changelog.html" not in links[:4]


def test_a_search_finds_each_page_in_one_language(search):
    assert not [link for link, _ in search("sealed") if link.startswith("zh/")]
    links = [link.partition("#")[0] for link, _ in search("scale", "zh/index.html")]
    assert all(link.startswith("zh/") for link in links)
    assert links[0] == "zh/reference/job-file.html"  # which is in English there, too


def test_a_word_is_found_where_another_of_the_query_is_not(search):
    assert any(link.startswith("explanation/links") for link, _ in search("key qqqqq"))
    assert search("rotate a key")[0][0].startswith("howto/hosts")
    assert search("he")[0][0].startswith("explanation/he")  # a word that lists of stop words have
