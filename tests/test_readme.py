"""The README is run: its examples, its line counts, and the shape of the two commands that a newcomer copies."""
import doctest
import pathlib
import re

ROOT = pathlib.Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_examples_of_the_tour():
    blocks = re.findall(r"```python\n(.*?)```", README, re.S)
    assert len(blocks) >= 4
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, "README", "README.md", 0)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    report = []
    runner.run(test, out=report.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(report)


def test_the_spine_and_its_lengths():
    rows = re.findall(r"\| \[`([\w/.]+)`\]\(([\w/.]+)\) \| (\d+) \|", README)
    assert len(rows) == 11
    for name, link, count in rows:
        assert name == link
        assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) == int(count), name


def test_the_two_commands():
    commands = re.search(r"```sh\n(.*?)```", README, re.S).group(1).splitlines()
    assert len(commands) == 2
    assert commands[0].endswith("minitx train reverse")
    assert "pytest" in commands[1]


def test_links_lead_to_files():
    for link in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / link).exists(), link


def test_nothing_is_left_to_be_filled_in():
    assert not re.search(r"@[A-Z]+@|TODO|TBD", README)


def test_every_file_says_in_its_first_line_what_it_adds():
    for file in (ROOT / "minitx").rglob("*.py"):
        assert file.read_text(encoding="utf-8").startswith('"""'), file
