"""The trajectory page, most of it in a real Chromium."""

import json
import random
import re
import time

import pytest
from chromium import loaded_files, open_page, wait_for
from hypothesis import given, settings
from hypothesis import strategies as st
from make_dump import HOSTILE, make_group, write_dump

from recipe_slca.report import rollout_dump
from recipe_slca.report.trajectories import to_embedded_json, write_page

ANY_TEXT = st.text(st.characters() | st.sampled_from("<>&\u2028\u2029\ud800\udfff\x00/!-"), max_size=30)
LOAD_S = 2.0


def _write(run_dir, rollouts):
    folder = run_dir / rollout_dump.FOLDER
    folder.mkdir(parents=True)
    (folder / "10.jsonl").write_text("".join(json.dumps(rollout) + "\n" for rollout in rollouts))


def _page(run_dir, output, **choice):
    write_page(rollout_dump.read(run_dir, **choice), output)
    return output


def _draw_all_columns(browser):
    browser.execute_script(
        "document.querySelectorAll('article').forEach((a) => a.querySelector('.body') || drawColumn(a))"
    )


def _press(browser, *keys):
    from selenium.webdriver.common.by import By

    for key in keys:
        browser.find_element(By.TAG_NAME, "body").send_keys(key)


def _choose(browser, field, value):
    browser.execute_script(
        "const f = document.getElementById(arguments[0]); f.value = arguments[1]; f.dispatchEvent(new Event('change'))",
        field,
        value,
    )


def _search(browser, query):
    browser.execute_script(
        "const f = document.getElementById('query'); f.value = arguments[0]; f.dispatchEvent(new Event('input'))", query
    )
    wait_for(browser, "return state.query === arguments[0].toLowerCase()", query)


def _visible(text):
    """The text as the page must show it: with characters that cannot be seen, or turn the line, by code."""
    hidden = "[\x00-\x08\x0b-\x1f\x7f\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
    return re.sub(hidden, lambda match: f"⟨U+{ord(match[0]):04X}⟩", text)


def _counts(browser):
    text = browser.execute_script("return document.getElementById('counts').textContent")
    return [int(number) for number in re.findall(r"\d+", text.replace(",", ""))]


def _nothing_went_wrong(browser):
    assert browser.get_log("browser") == []
    assert browser.execute_script("return window.wasRun") is None
    assert loaded_files(browser) == []


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("runs") / "demo_run"
    write_dump(run_dir, groups=8)
    return run_dir


@pytest.fixture(scope="module")
def page(run, tmp_path_factory):
    return _page(run, tmp_path_factory.mktemp("page") / "page.html")


@pytest.fixture(scope="module")
def dumped(run):
    return [json.loads(line) for file in sorted((run / "slca_rollouts").iterdir()) for line in file.open()]


@settings(deadline=None)
@given(st.recursive(ANY_TEXT | st.integers() | st.none(), lambda inner: st.dictionaries(ANY_TEXT, inner, max_size=3)))
def test_embedded_json_gives_the_value_back_and_cannot_leave_its_element(value):
    embedded = to_embedded_json(value)
    assert json.loads(embedded) == value
    assert not set(embedded) & set("<>&\u2028\u2029\r\n")
    embedded.encode("utf-8")


def test_same_dump_gives_the_same_page(run, page, tmp_path):
    assert _page(run, tmp_path / "again.html").read_bytes() == page.read_bytes()


def test_page_names_nothing_to_load(page):
    markup = re.sub(r"<script type=\"application/json\".*?</script>", "", page.read_text(), flags=re.DOTALL)
    assert not re.search(r"https?:|//cdn|@import|\ssrc=|url\(", markup)


def test_fifty_megabytes_of_one_rollout_make_a_small_page(tmp_path):
    rollouts = make_group(random.Random(1), 10, "g", size=2)
    rollouts[0]["trajectory"]["turns"][0]["text"] = "<think>" + "very long " * 2_500_000
    rollouts[0]["runs"][0]["text"] = "very long " * 2_500_000
    _write(tmp_path, rollouts)
    assert (tmp_path / "slca_rollouts" / "10.jsonl").stat().st_size > 50_000_000
    begin = time.monotonic()
    page = _page(tmp_path, tmp_path / "page.html")
    assert time.monotonic() - begin < 60
    assert page.stat().st_size < 1_000_000
    view = rollout_dump.read(tmp_path).groups[0].rollouts[0]
    assert view["cut"]["characters"] > 49_000_000
    assert view["place"] == "10.jsonl line 1"


def test_page_opens_without_a_complaint_in_light_and_dark(browser, page, tmp_path):
    grounds = []
    for scheme in ("light", "dark"):
        features = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", features)
        open_page(browser, page)
        wait_for(browser, "return document.querySelector('article .turn')")
        assert browser.save_screenshot(str(tmp_path / f"{scheme}.png"))
        grounds.append(browser.execute_script("return getComputedStyle(document.documentElement).backgroundColor"))
        _nothing_went_wrong(browser)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert grounds[0] != grounds[1]


def test_no_column_or_text_is_wider_than_its_place_at_1280_pixels(browser, page):
    open_page(browser, page)
    _draw_all_columns(browser)
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    wide = "return [...document.querySelectorAll('article, article *')].filter((e) => e.scrollWidth > e.clientWidth + 1"
    assert browser.execute_script(wide + " && getComputedStyle(e).display !== 'inline').map((e) => e.className)") == []


def test_two_thousand_rollouts_load_in_under_two_seconds(browser, tmp_path):
    write_dump(tmp_path / "run", groups=125, steps=5)
    for file in (tmp_path / "run" / "slca_rollouts").iterdir():
        lines = [json.loads(line) for line in file.open()]
        for line in lines:
            line["runs"][0]["text"] += "A long train of thought about <b>tools</b>. " * 200
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = _page(tmp_path / "run", tmp_path / "page.html")
    assert page.stat().st_size > 15_000_000
    seconds = []
    for _ in range(3):
        browser.get("about:blank")
        begin = time.monotonic()
        browser.get(page.as_uri())
        wait_for(browser, "return document.querySelector('article .turn')")
        seconds.append(time.monotonic() - begin)
    assert min(seconds) < LOAD_S
    assert _counts(browser) == [2000, 125]
    begin = time.monotonic()
    for _ in range(10):
        browser.execute_script("moveGroup(1)")
        wait_for(browser, "return document.querySelector('article .turn')")
    assert (time.monotonic() - begin) / 10 < 1
    _search(browser, "a LONG train of thought about <b>tools")
    assert _counts(browser)[0] == 2000
    _nothing_went_wrong(browser)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_shown_as_text_wherever_it_stands(browser, tmp_path, text):
    rollout = make_group(random.Random(1), 10, "g", hostile=False, size=1)[0]
    call = {"name": text, "arguments": {text: text}, "observation": text, "status": text, "source": text}
    block = "<tool_call>" + json.dumps({"name": text, "arguments": {text: text}}) + "</tool_call>"
    turns = [{"text": f"<think>{text}</think>{block}", "calls": [call]}, {"text": text, "calls": []}]
    rollout |= {
        "group": text,
        "question": text,
        "prompt": [{"role": text, "content": text}],
        "task": {text: text},
        "gold_calls": [[{"name": text, "arguments": {text: text}}]],
        "trajectory": {"question": text, "turns": turns, "ended": text},
        "metrics": rollout["metrics"] | {text: 1.0},
        "runs": [
            {"kind": kind, "tokens": 3, "text": text, "advantage": advantage}
            for kind, advantage in (("tool", 0.5), ("observation", None), ("summary", -0.5), (text, 0.1))
        ],
    }
    _write(tmp_path, [rollout])
    open_page(browser, _page(tmp_path, tmp_path / "page.html"))
    wait_for(browser, "return document.querySelector('article .turn')")
    shown, in_json = _visible(text), _visible(json.dumps(text, ensure_ascii=False)[1:-1])
    for where in (".head h2", ".prompt", ".meta", "#groups", ".gold", ".reasoning", ".reply", ".call-head", ".json"):
        seen = browser.execute_script("return document.querySelector(arguments[0]).textContent", where)
        assert (in_json if where in (".gold", ".json") else shown) in seen, where
    browser.execute_script("setView('tokens')")
    runs = wait_for(
        browser,
        "const r = document.querySelectorAll('.run .text'); return r.length && [...r].map((e) => e.textContent)",
    )
    assert runs == [shown] * 4
    elements = browser.execute_script(
        "return document.querySelectorAll('#pane :is(script, img, svg, style, b b)').length"
    )
    assert elements == 0
    _nothing_went_wrong(browser)


def test_policy_runs_no_script_but_the_pages_own(browser, page):
    open_page(browser, page)
    browser.execute_script("document.body.innerHTML = '<img src=x onerror=\"window.wasRun = true\">'")
    wait_for(browser, "return document.querySelector('img').complete")
    complaints = _wait_for_log(browser)
    assert browser.execute_script("return window.wasRun") is None
    assert all("Content Security Policy" in complaint["message"] for complaint in complaints)


def _wait_for_log(browser):
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if log := browser.get_log("browser"):
            return log
        time.sleep(0.05)
    raise AssertionError("the browser blocked nothing")


def test_numbers_are_those_of_the_dump(browser, page, dumped):
    open_page(browser, page)
    _draw_all_columns(browser)
    heads = browser.execute_script("return [...document.querySelectorAll('.column-head')].map((e) => e.innerText)")
    assert len(heads) == 16
    for head, rollout in zip(heads, dumped[:16], strict=True):
        assert f"Rollout {rollout['rollout']}" in head
        assert f"ended: {rollout['trajectory']['ended']}" in head
        for reward, absent in (("tool_reward", "none"), ("summary_reward", "ungraded")):
            value = rollout[reward]
            assert (absent if value is None else f"{value:.2f}".replace("-", "−")) in head
    terms = browser.execute_script("return [...document.querySelectorAll('.terms')].map((e) => e.innerText)")
    for shown, rollout in zip(terms, dumped[:16], strict=True):
        names = ("process", "format", "name", "key", "value", "parallel")
        assert re.findall(r"\d\.\d\d", shown) == [f"{rollout['metrics'][name]:.2f}" for name in names]


def test_tints_follow_sign_and_size(browser, page):
    open_page(browser, page)
    browser.execute_script("setView('tokens')")
    _draw_all_columns(browser)
    tints = browser.execute_script(
        "return [...document.querySelectorAll('.run .written')]"
        ".map((e) => [e.className, e.style.getPropertyValue('--strength')])"
    )
    advantages = browser.execute_script("return opened.rollouts.flatMap((r) => r.runs.map((run) => run.advantage))")
    largest = browser.execute_script("return index.largestAdvantage")
    assert len(tints) == len(advantages) > 16
    for (classes, strength), advantage in zip(tints, advantages, strict=True):
        assert ("positive" in classes) == ((advantage or 0) > 0)
        assert ("negative" in classes) == ((advantage or 0) < 0)
        if advantage:
            assert float(strength) == pytest.approx((abs(advantage) / largest) ** 0.5, abs=1e-3)


def test_calls_show_their_status_and_the_gold_call_they_stand_for(browser, tmp_path):
    blocks = [[{"name": "b", "arguments": {"x": 1}}, {"name": "a", "arguments": {"y": 2}}], "{broken", {"name": "c"}]
    statuses = ["ok", "wrong_type", "malformed_call", "service_unavailable"]
    names = ["b", "a", "", "c"]
    calls = [
        {"name": name, "arguments": {}, "observation": "seen", "status": status, "source": "llm"}
        for name, status in zip(names, statuses, strict=True)
    ]
    written = [block if isinstance(block, str) else json.dumps(block) for block in blocks]
    text = "".join(f"<tool_call>{block}</tool_call>" for block in written)
    rollout = make_group(random.Random(1), 10, "g", size=1)[0]
    rollout["gold_calls"] = [[{"name": "a", "arguments": {"y": 3}}], [{"name": "b", "arguments": {"x": "1"}}]]
    rollout["trajectory"] = {
        "question": "?",
        "ended": "replied",
        "turns": [{"text": text, "calls": calls}, {"text": "Done.", "calls": []}],
    }
    _write(tmp_path, [rollout])
    open_page(browser, _page(tmp_path, tmp_path / "page.html"))
    heads = wait_for(
        browser, "return [...document.querySelectorAll('.call-head')].map((e) => e.innerText.split('\\n'))"
    )
    assert heads == [
        ["b", "✓ valid", "G2"],
        ["a", "✗ invalid: wrong_type", "G1"],
        ["(no name)", "✗ malformed"],
        ["c", "✗ no answer, the simulator failed"],
    ]
    gold = browser.execute_script("return document.querySelector('.gold').parentElement.innerText")
    assert "2 of 2 matched" in gold
    assert re.search(r"G1\s+a\s+✓ turn 1, key 1.00, value 0.00\s+y\s+3\s+✗\s+called: 2", gold)
    assert re.search(r"G2\s+b\s+✓ turn 1, key 1.00, value 1.00\s+x\s+\"1\"\s+✓", gold)


def test_gold_calls_that_were_scored_in_another_way_say_so(browser, tmp_path):
    gold = {"name": "a", "arguments": {"x": 1}}
    rollout = make_group(random.Random(1), 10, "g", size=1)[0]
    rollout["gold_calls"] = [[gold]]
    turn = {"text": f"<tool_call>{json.dumps(gold)}</tool_call>", "calls": []}
    rollout["trajectory"] = {"question": "?", "ended": "replied", "turns": [turn, {"text": "Done.", "calls": []}]}
    rollout["metrics"] |= {"key": 1.0, "value": 0.0}
    as_scored = json.loads(json.dumps(rollout)) | {"rollout": 1}
    as_scored["metrics"]["value"] = 1.0
    _write(tmp_path, [rollout, as_scored])
    open_page(browser, _page(tmp_path, tmp_path / "page.html"))
    _draw_all_columns(browser)
    notes = browser.execute_script(
        "return [...document.querySelectorAll('article')].map((e) => e.querySelectorAll('.gold .note').length)"
    )
    assert notes == [1, 0]


def test_filters_keep_exactly_the_rollouts_that_pass(browser, page, dumped):
    open_page(browser, page)
    _choose(browser, "success", "true")
    successes = [rollout for rollout in dumped if rollout["metrics"]["success_0.9"]]
    assert _counts(browser)[:2] == [len(successes), len(dumped)]
    _choose(browser, "ended", "response_full")
    assert _counts(browser)[0] == sum(rollout["trajectory"]["ended"] == "response_full" for rollout in successes)
    _press(browser, "\ue00c")
    assert _counts(browser) == [len(dumped), 8]
    tools = browser.execute_script("return index.tools")
    _choose(browser, "tool", str(tools.index("search-web")))
    calls = [[call["name"] for turn in r["trajectory"]["turns"] for call in turn["calls"]] for r in dumped]
    assert _counts(browser)[0] == sum("search-web" in names for names in calls) > 0
    columns = browser.execute_script("return document.querySelectorAll('article').length")
    assert columns < 16
    browser.execute_script("document.querySelector('.more').click()")
    assert browser.execute_script("return document.querySelectorAll('article').length") == 16
    assert browser.execute_script("return document.querySelectorAll('article:not(.other)').length") == columns


def test_search_finds_exactly_the_rollouts_that_hold_the_text(browser, page, dumped):
    open_page(browser, page)
    _search(browser, "OnError=")
    holds = ["onerror=" in json.dumps(rollout["trajectory"]) for rollout in dumped]
    assert _counts(browser)[0] == sum(holds) > 0
    wait_for(browser, "return CSS.highlights.has('found') && CSS.highlights.get('found').size")
    _search(browser, "no rollout says this")
    assert _counts(browser) == [0, len(dumped), 0]
    assert "No rollout passes" in browser.execute_script("return document.getElementById('pane').textContent")
    _search(browser, "")
    assert _counts(browser)[0] == len(dumped)


def test_keys_move_between_groups_and_rollouts(browser, page):
    open_page(browser, page)
    current = "return [...document.querySelectorAll('#groups button')].findIndex((b) => b.ariaCurrent === 'true')"
    _press(browser, "\ue015", "\ue015", "\ue013")
    assert browser.execute_script(current) == 1
    _press(browser, "\ue013", "\ue013", "\ue013")
    assert browser.execute_script(current) == 0
    _press(browser, *["\ue015"] * 20)
    assert browser.execute_script(current) == 7
    _press(browser, *["\ue014"] * 9)
    assert browser.execute_script("return document.querySelector('article.selected').dataset.position") == "9"
    wait_for(browser, "return document.querySelector('article.selected .turn')")
    _press(browser, "t")
    wait_for(browser, "return document.querySelector('article .run') && !document.querySelector('article .turn')")
    _press(browser, "/")
    assert browser.execute_script("return document.activeElement.id") == "query"


def test_a_link_opens_its_group(browser, page):
    browser.get("about:blank")
    browser.get(page.as_uri() + "#group=5")
    assert browser.execute_script("return state.group") == 5


def test_what_was_skipped_stands_on_the_page(browser, run, tmp_path):
    lines = next((run / "slca_rollouts").iterdir()).read_bytes().splitlines(keepends=True)
    folder = tmp_path / rollout_dump.FOLDER
    folder.mkdir()
    (folder / "10.jsonl").write_bytes(b"".join([*lines[:3], b"<script>broken\n", lines[4][:999]]))
    open_page(browser, _page(tmp_path, tmp_path / "page.html"))
    notes = browser.execute_script("return document.getElementById('notes').innerText")
    assert "1 line skipped: not readable as JSON (first: 10.jsonl line 4)" in notes
    assert "1 line skipped: half a line at the end of a file" in notes
    _nothing_went_wrong(browser)


def test_values_that_are_no_number_stand_out(browser, tmp_path):
    rollout = make_group(random.Random(2), 10, "g", size=1)[0]
    rollout["runs"][-1]["advantage"] = float("nan")
    rollout["tool_reward"] = float("inf")
    _write(tmp_path, [rollout])
    open_page(browser, _page(tmp_path, tmp_path / "page.html"))
    wait_for(browser, "return document.querySelector('article .alarm')")
    assert "A nan" in browser.execute_script("return document.querySelector('.column-head').innerText")
    _nothing_went_wrong(browser)
