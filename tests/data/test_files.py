"""Files from anywhere, and one clear error for each that cannot be read."""
import pytest

from minitx.data import read_pairs, read_text


def write(tmp_path, content, name="a.txt"):
    path = tmp_path / name
    path.write_bytes(content)
    return path


def test_utf8(tmp_path):
    assert read_text(write(tmp_path, "grüße 中\n".encode())) == "grüße 中\n"


def test_byte_order_mark_is_not_part_of_the_text(tmp_path):
    assert read_text(write(tmp_path, b"\xef\xbb\xbfab")) == "ab"


def test_line_ends_of_all_systems(tmp_path):
    assert read_text(write(tmp_path, b"a\r\nb\rc\nd\r\r\ne")) == "a\nb\nc\nd\n\ne"


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf", b" \n\r\n\t"])
def test_empty(tmp_path, content):
    with pytest.raises(ValueError, match=r"a\.txt is empty"):
        read_text(write(tmp_path, content))


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_undecodable_bytes_are_named_with_their_place(tmp_path, mark):
    path = write(tmp_path, mark + b"ab\ncaf\xe9 au lait")
    with pytest.raises(ValueError, match=rf"a\.txt is not UTF-8: byte 0xe9 at position {6 + len(mark)} \(line 2\)"):
        read_text(path)


def test_utf16_is_recognised(tmp_path):
    with pytest.raises(ValueError, match="looks like UTF-16"):
        read_text(write(tmp_path, "text".encode("utf-16")))


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"b\.txt: there is no such file"):
        read_text(tmp_path / "b.txt")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        read_text(tmp_path)


def test_pairs_with_line_numbers(tmp_path):
    path = write(tmp_path, b"a\tb\r\n\r\n  c d \t e\n", "p.tsv")
    assert list(read_pairs(path)) == [(1, "a", "b"), (3, "c d", "e")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"no tab here", r"p\.tsv, line 2: no tab; .*'no tab here'"),
        (b"a\tb\tc", r"p\.tsv, line 2: 2 tabs"),
        (b"a\t ", r"p\.tsv, line 2: the target is empty"),
        (b"\tb", r"p\.tsv, line 2: the source is empty"),
    ],
)
def test_bad_lines(tmp_path, line, message):
    path = write(tmp_path, b"ok\tfine\n" + line + b"\n", "p.tsv")
    with pytest.raises(ValueError, match=message):
        list(read_pairs(path))


def test_empty_tsv(tmp_path):
    with pytest.raises(ValueError, match="is empty"):
        list(read_pairs(write(tmp_path, b"\n\n", "p.tsv")))
