"""minitx generate: how the next symbol is chosen, prompts from files, streams, statistics."""
import io

import pytest
from tiny import TINY

for library in ("safetensors", "matplotlib"):
    pytest.importorskip(library, reason=f"{library} is not installed")


def test_drawing_repeats_with_its_seed(run, language_model):
    words = ["generate", language_model, "abc", "--max-new", 5, "--temperature", 5]
    first = run(*words)
    assert first[0] == 0
    assert run(*words) == first
    assert len({run(*words, "--seed", seed)[1] for seed in range(5)}) > 1
    assert run(*words, "--seed", 0) == first
    assert run("generate", language_model, "abc", "--max-new", 5, "--top-k", 1)[1] == run(
        "generate", language_model, "abc", "--max-new", 5)[1]  # fmt: skip


def test_all_the_settings_at_once(run, language_model):
    status, out, _ = run(
        "generate", language_model, "abc", "--max-new", 5, "--temperature", 0.9, "--top-k", 9, "--top-p", 0.9,
        "--min-p", 0.01, "--repetition-penalty", 1.2, "--seed", 3, "--n", 3, "--stop", "jj", "--stop", "ii",
    )  # fmt: skip
    assert status == 0
    assert out.count("---\n") == 2
    assert out.count("abc") >= 3


def test_beam(run, language_model):
    greedy = run("generate", language_model, "abc", "--max-new", 4)[1]
    assert run("generate", language_model, "abc", "--max-new", 4, "--beam", 1)[1] == greedy
    words = ["generate", language_model, "abc", "--max-new", 4, "--beam", 4, "--n", 2, "--length-penalty", 1]
    status, out, _ = run(*words)
    assert status == 0
    first, second = out.split("---\n")
    assert first != second


def test_prompts_from_a_file_one_a_line(run, language_model, tmp_path, monkeypatch):
    (tmp_path / "prompts").write_text("abc\nj\n", encoding="utf-8")
    status, out, _ = run("generate", language_model, "--file", tmp_path / "prompts", "--max-new", 3)
    assert status == 0
    alone = [run("generate", language_model, prompt, "--max-new", 3)[1] for prompt in ("abc", "j")]
    assert out == "---\n".join(alone)
    monkeypatch.setattr("sys.stdin", io.StringIO("abc\nj\n"))
    assert run("generate", language_model, "--file", "-", "--max-new", 3)[1] == out
    assert run("generate", language_model, "abc", "j", "--max-new", 3, "--batch", 1)[1] == out


def test_an_empty_file_is_no_prompt_and_an_empty_line_is_one(refuse, language_model, tmp_path, monkeypatch):
    (tmp_path / "prompts").write_text("", encoding="utf-8")
    assert "is empty" in refuse("generate", language_model, "--file", tmp_path / "prompts")
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert "no prompt" in refuse("generate", language_model, "--file", "-")
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert "the prompt is empty" in refuse("generate", language_model, "--file", "-")


def test_a_stream_is_the_same_text(run, language_model):
    words = ["generate", language_model, "abc", "j", "--max-new", 4]
    assert run(*words, "--stream")[1] == run(*words)[1]
    drawn = [*words, "--temperature", 2]
    assert run(*drawn, "--stream")[1] == run(*drawn)[1]


def test_statistics_name_everything(run, language_model):
    status, out, err = run("generate", language_model, "abc", "j", "--max-new", 4, "--stats", "--top-p", 0.9)
    assert status == 0
    assert "prefill" not in out
    said = dict(line.split("  ", 1) for line in err.splitlines())
    said = {name: value.strip() for name, value in said.items()}
    assert said["rows"] == "2, up to 64 at a time"
    assert said["prompt length"] == "1 to 3, mean 2.0"
    assert said["output length"].startswith("4") or "to" in said["output length"]
    assert said["decoding"] == "drawn, temperature 1, top_k all, top_p 0.9, min_p 0, seed 0"
    assert said["cache"] == "contiguous, no window, float32, not paged, not offloaded"
    assert "bytes in use" in said["cache size"]
    assert "4 tokens in" in said["prefill"]
    assert "ms a step" in said["decode"]
    assert "numba" in said["computed by"] or "reference" in said["computed by"]
    assert said["dtype"] == "float32"
    _, _, err = run("generate", language_model, "abc", "--max-new", 4, "--stats", "--no-cache")
    assert "none, everything is computed anew" in err
    assert "0 bytes in use" in err
    _, _, err = run("generate", language_model, "abc", "--max-new", 9, "--stats", "--cache-dtype", "int8")
    assert "contiguous, no window, int8, not paged, not offloaded" in err
    assert "each computed anew from the latest 8" in err


def test_a_line_that_fails_leaves_the_others(run):
    assert run("train", "copy", "--steps", 1, "--out", "a", *TINY, "max_length=5")[0] == 0
    status, out, err = run("generate", "a", "1 2 3", "x", "1 2 3 4 5 6", "3", "--max-new", 3)
    assert status == 2
    lines = out.split("\n")
    assert lines[0] + "\n" == run("generate", "a", "1 2 3", "--max-new", 3)[1]
    assert lines[1:3] == ["", ""]
    assert lines[3] + "\n" == run("generate", "a", "3", "--max-new", 3)[1]
    assert len(err.splitlines()) == 2
    assert "minitx: error: prompt 2: 'x' (character 1) is not among" in err
    assert "minitx: error: prompt 3: '1 2 3 4 5 6'... has 6 symbols, and the model has positions for 4" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no prompt"),
        (["abc", "--temperature", -1], "temperature is a number at least 0"),
        (["abc", "--top-k", 0], "top_k is a whole number, at least 1, not 0"),
        (["abc", "--top-p", 0], "top_p is a number above 0 and at most 1"),
        (["abc", "--top-p", 1.5], "top_p"),
        (["abc", "--min-p", 2], "min_p"),
        (["abc", "--repetition-penalty", 0], "repetition_penalty"),
        (["abc", "--seed", -1], "seed"),
        (["abc", "--beam", 0], "beam is a whole number, at least 1, not 0"),
        (["abc", "--beam", 2, "--temperature", 1], "draws nothing"),
        (["abc", "--beam", 2, "--n", 3], "a beam of 2 has no 3 best"),
        (["abc", "--length-penalty", 1], "length_penalty is of beam search"),
        (["abc", "--n", 2], "2 greedy answers"),
        (["abc", "--n", 0], "--n is at least 1, not 0"),
        (["abc", "--stop", ""], "a stop sequence"),
        (["abc", "--stream", "--beam", 2], "--stream writes one answer"),
        (["abc", "--stream", "--temperature", 1, "--n", 2], "--stream writes one answer"),
        (["abc", "--batch", 0], "batch"),
        (["abc", "--no-cache", "--cache-dtype", "int8"], "cache_dtype"),
        (["-", "--file", "-"], "read once"),
        (["--file", "nowhere"], "there is no such file"),
        (["abcdefghi"], "9 symbols, and the model has positions for 8"),
    ],
)
def test_refused(refuse, language_model, words, said):
    assert said in refuse("generate", language_model, *words)
