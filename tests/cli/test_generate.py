"""`outpace generate`: what goes where, what cannot be had together, and the two ways compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from inspect import signature
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from outpace.cli import generate as command
from outpace.cli.app import app
from outpace.options import Options
from outpace.registry import DRAFTERS, RULES

Run = Callable[..., Result]

FAST = ("--raw", "--max-tokens", "24", "--draft-length", "3")
SAMPLED = (*FAST, "-t", "1", "--seed", "3")
RECORD = {
    "text", "tokens", "finish", "prompt_tokens", "tokens_per_step", "acceptance_rate", "accepted_by_position",
    "drafted", "accepted", "operations_factor", "draft_bytes", "reproducible", "model", "engine", "drafter", "reason",
    "fault", "rule", "lossless", "seed", "threads", "seconds", "choice", "logprobs", "others", "speedup", "expected",
}  # fmt: skip


def test_the_text_goes_to_stdout_and_one_summary_line_to_stderr(run: Run) -> None:
    plain, drafted = run("generate", "ab abc", *FAST), run("generate", "ab abc", *FAST)
    assert plain.exit_code == 0
    assert plain.stdout == drafted.stdout
    assert plain.stdout.endswith("\n")
    [line] = plain.stderr.splitlines()
    assert "24 tokens at" in line
    assert "suffix" in line


@pytest.mark.parametrize("source", [["ab abc"], ["-"], []])
def test_the_prompt_comes_from_the_command_line_or_from_stdin(run: Run, source: list[str]) -> None:
    expected = run("generate", "ab abc", *FAST).stdout
    assert run("generate", *source, *FAST, input="ab abc").stdout == expected


def test_json_is_one_object_and_nothing_else(run: Run) -> None:
    result = run("generate", "ab abc", *FAST, "--json")
    assert json.loads(result.stdout).keys() == RECORD
    assert json.loads(result.stdout)["text"] == run("generate", "ab abc", *FAST).stdout.removesuffix("\n")
    assert result.stderr == ""
    assert result.stdout.count("\n") == 1


@pytest.mark.parametrize("rule", ["coupled", "rejection"])
def test_every_option_reaches_the_generation(run: Run, rule: str) -> None:
    options = ["--temperature", "0.5", "--top-p", "0.9", "--top-k", "7", "--min-p", "0.01", "--seed", "11"]
    record = json.loads(
        run("generate", "ab", "--raw", *options, "--rule", rule, "--max-tokens", "3", "--json").stdout
    )
    assert (record["seed"], record["rule"], len(record["tokens"])) == (11, rule, 3)


def test_what_to_load_is_passed_on(run: Run, loads: list[dict[str, object]]) -> None:
    asked = ["--model", "big.gguf", "--draft", "small.gguf", "--threads", "2", "--context", "99", "--store", "texts"]
    run("generate", "ab", *FAST, *asked)
    wanted = {"target": "big.gguf", "draft": "small.gguf", "threads": 2, "context": 99, "store": "texts"}
    assert [{name: value if isinstance(value, int) else str(value) for name, value in loads[0].items()}] == [wanted]


def test_a_draft_model_drafts(run: Run) -> None:
    assert json.loads(run("generate", "ab", *FAST, "--draft", "x.gguf", "--json").stdout)["drafter"] == "mixture"


def test_every_sampling_option_reaches_the_generation(run: Run) -> None:
    def tokens(*options: str) -> list[int]:
        line = run("generate", "ab", "--raw", "-t", "1", "--seed", "3", "-n", "12", *options, "--json").stdout
        return list(json.loads(line)["tokens"])

    whole = tokens()
    assert set(tokens("--allow", "70", "--allow", "71")) <= {70, 71}
    assert set(tokens("--logit-bias", "70=100")) == {70}
    assert whole[0] not in tokens("--ban", str(whole[0]))
    assert tokens("--stop-id", str(whole[2])) == whole[:3]
    assert len(tokens("--stop-id", str(whole[2]), "--min-tokens", "5")) > 5
    endless = tokens("--ignore-eos")
    assert (endless[: len(whole)], len(endless) > len(whole)) == (whole, True)
    for penalty in ("--repetition-penalty", "--presence-penalty", "--frequency-penalty"):
        assert len(set(tokens("--allow", "70", "--allow", "71", "--allow", "72", penalty, "2"))) > 1


def test_log_probabilities_are_in_the_record(run: Run) -> None:
    record = json.loads(run("generate", "ab", *FAST, "--logprobs", "2", "--json").stdout)
    assert [one["token"] for one in record["logprobs"]] == record["tokens"]
    assert all(len(one["top"]) == 2 for one in record["logprobs"])


def test_choices_are_written_one_after_the_other(run: Run) -> None:
    result = run("generate", "ab", *SAMPLED, "--n", "2")
    first, second = (
        run("generate", "ab", *SAMPLED).stdout,
        json.loads(run("generate", "ab", *SAMPLED, "--n", "2", "--json").stdout)["others"][0]["text"],
    )
    assert result.stdout == f"{first}{second}\n"
    notes = result.stderr.splitlines()
    assert notes[:2] == ["choice 0:", "choice 1:"]
    assert len(notes) == 4


@pytest.mark.parametrize("way", [["--no-speculation"], ["--drafter", "none"]])
def test_speculation_can_be_left_out(run: Run, way: list[str]) -> None:
    record = json.loads(run("generate", "ab", "--raw", "-n", "5", *way, "--json").stdout)
    assert (record["drafter"], record["drafted"], record["acceptance_rate"]) == ("none", 0, None)


def test_a_stop_string_ends_the_text(run: Run) -> None:
    whole = run("generate", "ab", *SAMPLED).stdout
    stop = "son"
    assert run("generate", "ab", *SAMPLED, "--stop", stop).stdout == whole[: whole.index(stop)] + "\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--top-p", "1.3"], "top_p must be in (0, 1], got 1.3"),
        (
            ["--rule", "best"],
            "unknown rule 'best'; known: coupled, rejection, block, traversal, typical, lenience, lenience-greedy",
        ),
        (
            ["--drafter", "psychic"],
            f"unknown drafter 'psychic'; known: {', '.join(DRAFTERS.names())}",
        ),
        (["--max-tokens", "0"], "max_tokens must be at least 1, got 0"),
        (["--stop", ""], "stop strings must be a list of texts that are not empty, got ('',)"),
        (
            ["--no-speculation", "--draft", "x"],
            "--no-speculation and --draft contradict each other: leave one of them out",
        ),
        (
            ["--no-speculation", "--draft-length", "4"],
            "--no-speculation and --draft-length contradict each other: leave one of them out",
        ),
        (
            ["--draft", "x", "--drafter", "ngram"],
            "--draft MODEL is for the drafters 'model', 'mixture' and 'translate', got --drafter ngram: "
            "leave one of them out",
        ),
        (
            ["--exit-layer", "3", "--drafter", "lookahead"],
            "--exit-layer is for the drafter 'early_exit', got --drafter lookahead: leave it out",
        ),
        (
            ["--drafter", "model"],
            "--drafter model needs a draft model: --draft MODEL (outpace models drafts lists some)",
        ),
        (["--explain", "--json"], "--json holds what --explain tells: leave one of them out"),
        (["--explain", "--trace"], "--trace slows down what --explain tells: leave one of them out"),
        (["--show-draft", "--json"], "--show-draft colours the text and --json prints none: leave one of them out"),
        (["--compare", "--trace"], "--trace slows down what --compare measures: leave one of them out"),
        (
            ["--compare", "--no-speculation"],
            "--compare needs speculation: leave out --no-speculation, --drafter none or --draft-length 0",
        ),
        (["--repetition-penalty", "0"], "repetition_penalty must be in [0.01, 100] (1 = off), got 0.0"),
        (["--logit-bias", "7"], "--logit-bias must be a token id and a number, ID=X, got '7'"),
        (["--logit-bias", "7=1", "--logit-bias", "7=2"], "--logit-bias names token 7 twice: leave one of them out"),
        (["--ban", "320"], "banned must hold token ids in [0, 320), got 320"),
        (["--min-tokens", "9", "-n", "4"], "min_tokens must be at most max_tokens (4), got 9"),
        (["--n", "0"], "n must be in [1, 128], got 0"),
        (["--n", "2", "--compare"], "--compare is for one text: leave out --n 2"),
        (["--logprobs", "2"], "--logprobs are part of the JSON record: add --json"),
        (["--trace=out.txt"], "--trace writes a page, whose name ends in .html, got 'out.txt'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(run: Run, arguments: list[str], message: str) -> None:
    result = run("generate", "ab", "--raw", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"outpace: error: {message}\n"


@pytest.mark.parametrize("prompt", ["", "  \n"])
def test_an_empty_prompt_is_refused(run: Run, prompt: str) -> None:
    result = run("generate", "-", input=prompt)
    assert (result.exit_code, result.stderr) == (2, "outpace: error: the prompt is empty\n")


def test_a_prompt_that_is_not_utf_8_is_refused(run: Run) -> None:
    result = run("generate", "-", input=b"ab\xff")
    assert (result.exit_code, result.stderr) == (2, "outpace: error: the prompt on stdin is not UTF-8: byte 2\n")


def test_what_is_refused_is_refused_before_anything_is_loaded(run: Run, loads: list[dict[str, object]]) -> None:
    run("generate", "ab", "--no-speculation", "--draft", "x")
    run("generate", "-", input="")
    assert loads == []


def test_drafts_are_marked_where_there_is_no_colour(run: Run) -> None:
    result = run("generate", "ab abc", *SAMPLED, "--show-draft", "--draft", "x.gguf")
    plain = run("generate", "ab abc", *SAMPLED).stdout
    assert "\x1b[3" not in result.stdout
    assert result.stderr.splitlines()[0] == "{accepted}  <correction>  (bonus)"
    assert any(mark in result.stdout for mark in "{<(")
    unmarked = result.stdout.translate(dict.fromkeys(map(ord, "{}<>()")))
    assert unmarked == plain.translate(dict.fromkeys(map(ord, "{}<>()")))


def test_comparing_says_how_much_faster_and_that_the_text_is_identical(run: Run) -> None:
    result = run("generate", "ab abc", *SAMPLED, "--compare")
    assert result.exit_code == 0
    lines = result.stderr.splitlines()
    assert lines[0].startswith("speculative: ")
    assert lines[1].startswith("plain:       ")
    assert lines[2].endswith("times as fast as plain decoding, text identical")


def test_comparing_without_a_seed_uses_one_for_both(run: Run) -> None:
    record = json.loads(run("generate", "ab", *FAST, "-t", "1", "--compare", "--json").stdout)
    assert record.keys() == {"speculative", "plain", "speedup", "identical", "first_difference"}
    assert record["speculative"]["seed"] == record["plain"]["seed"]
    assert record["identical"]
    assert record["first_difference"] is None


def test_where_texts_part_the_first_difference_is_shown(run: Run) -> None:
    result = run("generate", "ab", *SAMPLED, "--rule", "rejection", "--draft", "x.gguf", "--compare")
    assert "texts differ from token" in result.stderr
    assert "rule rejection keeps the model's law, not the seed's text; coupled keeps both" in result.stderr


def test_a_lossy_rule_is_not_excused_in_a_comparison(run: Run) -> None:
    result = run("generate", "ab", *SAMPLED, "--rule", "lenience-greedy", "--draft", "x.gguf", "--compare")
    assert "rule lenience-greedy is lossy: it keeps neither the model's law nor the text" in result.stderr


def test_a_trace_of_a_rule_that_cannot_be_told_is_refused(run: Run) -> None:
    result = run("generate", "ab", *SAMPLED, "--rule", "block", "--trace")
    assert result.exit_code == 2
    assert "rounds can be shown of the rules coupled and rejection, got 'block'" in result.stderr


def test_a_trace_shows_each_round_on_stderr_and_the_text_on_stdout(run: Run) -> None:
    plain = run("generate", "ab abc", *SAMPLED)
    result = run("generate", "ab abc", *SAMPLED, "--trace")
    assert result.stdout == plain.stdout
    assert "round 1, after " in result.stderr
    assert "target's law p:" in result.stderr


def test_a_sampled_text_comes_with_the_seed_that_gives_it_again(run: Run) -> None:
    first = run("generate", "ab abc", *FAST, "-t", "1")
    seed = first.stderr.split("| seed ")[1].strip()
    assert run("generate", "ab abc", *FAST, "-t", "1", "--seed", seed).stdout == first.stdout
    assert "seed" not in run("generate", "ab abc", *FAST).stderr


def test_a_text_that_no_seed_gives_again_says_what_would_help(run: Run) -> None:
    result = run("generate", "ab", "--raw", "-n", "8", "-t", "1", "--rule", "rejection", "--seed", "1")
    assert "rule rejection, not reproducible: set --draft-length, or --rule coupled" in result.stderr


def test_a_greedy_trace_says_what_its_laws_are(run: Run) -> None:
    assert run("generate", "ab", *FAST, "--trace").stderr.startswith("greedy: p is 1 on the token")
    assert "greedy" not in run("generate", "ab", *SAMPLED, "--trace").stderr


def test_under_rejection_a_trace_shows_r_and_the_residual(run: Run) -> None:
    result = run("generate", "ab abc", *SAMPLED, "--rule", "rejection", "--draft", "x.gguf", "--trace")
    assert "r q ≥ p" in result.stderr
    assert "residual norm(max(0, p - q)), mass" in result.stderr
    assert "correction" in result.stderr


def test_under_coupled_a_trace_shows_both_draws(run: Run) -> None:
    result = run("generate", "ab abc", *SAMPLED, "--draft", "x.gguf", "--trace")
    assert "drafter drew" in result.stderr
    assert "target drew" in result.stderr


def test_a_trace_goes_into_a_page(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "out.html"
    result = run("generate", "ab <abc>", *SAMPLED, "--trace", str(page))
    assert result.exit_code == 0
    assert "rounds written to" in result.stderr
    html = page.read_text()
    assert "ab &lt;abc&gt;" in html
    assert html.count("<section") == html.count('id="round-')


def test_a_page_that_cannot_be_written_is_refused_before_the_answer(run: Run, tmp_path: Path) -> None:
    result = run("generate", "ab", *FAST, f"--trace={tmp_path}/none/out.html")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        f"outpace: error: --trace {tmp_path}/none/out.html: there is no folder {tmp_path}/none\n"
    )


@pytest.mark.parametrize("arguments", [["--trace", "ab abc"], ["ab abc", "--trace"], ["--trace", "--", "ab abc"]])
def test_trace_does_not_swallow_the_prompt(run: Run, arguments: list[str]) -> None:
    result = run("generate", *SAMPLED, *arguments)
    assert "round 1, " in result.stderr


def test_a_trace_in_json_is_part_of_the_record(run: Run) -> None:
    record = json.loads(run("generate", "ab", *FAST, "--trace", "--json").stdout)
    assert record.keys() == RECORD | {"rounds"}
    assert [token for one in record["rounds"] for token in one["tokens"]] == record["tokens"]


def test_the_defaults_are_those_of_the_python_face() -> None:
    ours = signature(command.generate).parameters
    for name in (
        *("max_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "drafter", "draft_length", "rule"),
        *("repetition_penalty", "presence_penalty", "frequency_penalty", "n", "logprobs", "min_tokens", "ignore_eos"),
    ):
        assert ours[name].default == getattr(Options(), name), name


def test_the_help_names_every_drafter_and_rule() -> None:
    text = CliRunner().invoke(app, ["generate", "--help"]).output
    assert all(name in text for name in (*DRAFTERS.own, *RULES.own))


def test_a_regex_and_a_schema_shape_the_text(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("llguidance")
    file = tmp_path / "schema.json"
    file.write_text('{"type": "array", "items": {"enum": [1, "two"]}, "minItems": 2, "maxItems": 2}')
    items = json.loads(run("generate", "ab", *FAST, "--max-tokens", "99", "--json-schema", str(file)).stdout)
    assert len(items) == 2
    assert set(items) <= {1, "two"}
    assert run("generate", "ab", *FAST, "--regex", "(up|down)wards").stdout in ("upwards\n", "downwards\n")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--regex", "a", "--json-schema", "x.json"], "leave one of them out"),
        (["--json-schema", "nowhere.json"], "No such file"),
        (["--json-schema", __file__], "is not JSON"),
        (["--regex", ""], "1 to 4096 characters"),
        (["--regex", "a", "--ignore-eos"], "ignore_eos"),
    ],
)
def test_a_wrong_grammar_is_one_line(run: Run, options: list[str], message: str) -> None:
    done = run("generate", "ab", *FAST, *options)
    assert done.exit_code != 0
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a\udcff"], "the prompt is not UTF-8: after 1 characters"),
        (["ab", "--system", "\udcff"], "--system is not UTF-8: after 0 characters"),
        (["ab", "--stop", "\udcff"], "a stop string must be Unicode, got half of a surrogate pair in '\\udcff'"),
    ],
)
def test_bytes_of_the_shell_that_are_no_text_are_refused(run: Run, words: list[str], message: str) -> None:
    result = run("generate", *words)
    assert (result.exit_code, result.stderr) == (2, f"outpace: error: {message}\n")


def test_an_expected_answer_is_drafted_from_and_changes_no_text(run: Run, tmp_path: Path) -> None:
    plain = json.loads(run("generate", "ab abc", *FAST, "--json").stdout)
    (tmp_path / "answer.txt").write_text(plain["text"])
    asked = ("generate", "ab abc", *FAST, "--predict", str(tmp_path / "answer.txt"), "--json")
    found = json.loads(run(*asked).stdout)
    assert found["text"] == plain["text"]
    assert "copies from the prediction" in found["reason"]


@pytest.mark.parametrize(
    ("content", "more", "words"),
    [
        (None, (), "No such file"),
        (b"\xff\xfe", (), "is not UTF-8: byte 0"),
        (b"", (), "is empty: leave it out"),
        (b"x", ("--no-speculation",), "copies from no prediction"),
        (b"x" * (5 << 20), (), "larger than 4 MiB"),
        (b"x" + "\N{LATIN SMALL LETTER E WITH ACUTE}".encode() * (3 << 20), (), "larger than 4 MiB"),
    ],
)
def test_what_cannot_be_expected_is_one_line(run: Run, tmp_path: Path, content, more, words) -> None:
    file = tmp_path / "answer.txt"
    if content is not None:
        file.write_bytes(content)
    result = run("generate", "ab", "--predict", str(file), *more)
    assert result.exit_code == 2
    [line] = result.stderr.splitlines()
    assert words in line


def test_a_prediction_is_compared_with_plain_decoding(run: Run, tmp_path: Path) -> None:
    (tmp_path / "answer.txt").write_text("abc ab")
    result = run("generate", "ab abc", "--raw", "-n", "24", "--predict", str(tmp_path / "answer.txt"), "--compare")
    assert "text identical" in result.stderr
