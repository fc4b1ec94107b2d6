"""The page in a real Chromium: colours, figures, the race, the planner's sliders, a narrow screen, the keyboard."""

from __future__ import annotations

import shutil

import pytest

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")
pytest.importorskip("selenium", reason="selenium is not installed")

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from outpace.result import origins

pytestmark = pytest.mark.embedded

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-quic", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("no Chromium with its driver on this machine")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.set_window_size(1100, 900)
    yield driver
    driver.quit()


@pytest.fixture
def page(browser, served):
    """The page, freshly loaded; at the end, nothing in it may have failed."""
    browser.get(served.url + "/")
    browser.execute_script("location.hash = ''")
    browser.refresh()
    WebDriverWait(browser, 30).until(lambda b: "smollm2" in b.find_element(By.ID, "model").text)
    yield browser
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def put(page, id, value):
    page.execute_script("document.getElementById(arguments[0]).value = arguments[1]", id, str(value))


def figure(page, id):
    return page.find_element(By.ID, id).text


def idle(page):
    WebDriverWait(page, 120).until(lambda b: b.find_element(By.ID, "send").is_enabled())


def ask(page, question):
    page.find_element(By.ID, "question").send_keys(question + Keys.ENTER)
    WebDriverWait(page, 60).until(lambda b: b.find_elements(By.CSS_SELECTOR, "li.assistant .token"))
    idle(page)


def test_an_answer_shows_how_each_token_came(page, solo):
    put(page, "max-tokens", 60)
    put(page, "draft-length", 4)
    ask(page, "Count from one to twenty in words, then again.")
    expected = solo.generate(
        [{"role": "user", "content": "Count from one to twenty in words, then again."}], max_tokens=60, draft_length=4
    )
    answer = page.find_element(By.CSS_SELECTOR, "li.assistant")
    assert answer.get_property("textContent") == expected.text
    spans = page.find_elements(By.CSS_SELECTOR, "li.assistant .token")
    assert len(spans) == len(expected.tokens)
    accepted = page.find_elements(By.CSS_SELECTOR, "li.assistant .token.accepted")
    assert len(accepted) == sum(origins(step).count("accepted") for step in expected.steps)
    assert figure(page, "acceptance") == f"{expected.accepted} of {expected.drafted}"
    assert float(figure(page, "per-step")) == pytest.approx(expected.tokens_per_step, abs=0.005)
    assert "position 1" in page.find_element(By.ID, "positions").get_attribute("aria-label")


def test_hovering_and_arrow_keys_tell_of_a_token(page):
    put(page, "max-tokens", 8)
    ask(page, "Name a colour.")
    answer = page.find_element(By.CSS_SELECTOR, "li.assistant")
    webdriver.ActionChains(page).move_to_element(answer.find_element(By.CSS_SELECTOR, ".token")).perform()
    assert "probability" in figure(page, "tip")
    answer.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert "round" in figure(page, "tip")


def test_a_conversation_goes_on_and_can_begin_anew(page):
    put(page, "max-tokens", 8)
    ask(page, "Name a colour.")
    ask(page, "Another.")
    assert len(page.find_elements(By.CSS_SELECTOR, "#messages li")) == 4
    page.find_element(By.ID, "reset").click()
    assert page.find_elements(By.CSS_SELECTOR, "#messages li") == []


def test_stopping_frees_the_server(page, served):
    put(page, "max-tokens", 900)
    page.find_element(By.ID, "question").send_keys("Write a very long story of the sea." + Keys.ENTER)
    WebDriverWait(page, 60).until(lambda b: b.find_elements(By.CSS_SELECTOR, "li.assistant .token"))
    page.find_element(By.ID, "stop").click()
    idle(page)
    WebDriverWait(page, 10).until(lambda _: not served.service.scheduler.open)


def test_a_wrong_setting_is_shown_in_the_servers_words(page):
    put(page, "temperature", -1)
    page.find_element(By.ID, "question").send_keys("Hello" + Keys.ENTER)
    WebDriverWait(page, 30).until(lambda b: b.find_element(By.ID, "problem").is_displayed())
    assert "temperature" in figure(page, "problem")
    idle(page)
    assert page.find_elements(By.CSS_SELECTOR, "#messages li") == []
    assert page.find_element(By.ID, "question").get_property("value") == "Hello"
    page.get_log("browser")  # the browser notes the 400 itself


def test_a_race_says_who_won_and_that_the_text_is_the_same(page):
    put(page, "max-tokens", 40)
    page.find_element(By.LINK_TEXT, "Race").click()
    page.find_element(By.ID, "go").click()
    WebDriverWait(page, 120).until(lambda b: "the same text" in b.find_element(By.ID, "outcome").text)
    assert "NOT" not in figure(page, "outcome")
    lanes = [page.find_element(By.ID, f"{name}-text").text for name in ("plain", "drafts")]
    assert lanes[0] == lanes[1] != ""


def test_the_planners_sliders_move_its_verdict(page, served):
    page.get(served.url + "/plan")
    before = figure(page, "length-verdict")
    page.execute_script(
        "const a = document.getElementById('alpha'); a.value = 0.3; a.dispatchEvent(new Event('input'));"
    )
    assert figure(page, "length-verdict") != before


def test_it_fits_a_phone(page):
    page.set_window_size(500, 850)
    try:
        put(page, "max-tokens", 30)
        ask(page, "Name the four seasons of the year.")
        width = page.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
        assert width[0] <= width[1]
    finally:
        page.set_window_size(1100, 900)
