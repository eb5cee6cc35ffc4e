import json
import zipfile

import pytest

from icefall_ctx.corpora.chitchat import MEMBER, read_chitchat, split_by_id
from icefall_ctx.errors import InputError, ProblemLog

DATA = {
    "b": {"messages": [[{"text": "Hello"}, {"text": "you there?"}], [{"text": "Yes."}]]},
    "a": {"messages": [[{"text": "..."}], [{"text": "Fine"}]]},
    "c": {"messages": [[{"text": "..."}]]},
    "d": {"messages": [[{"no": 1}]]},
    "e": {},
}


def words_only(text):
    return " ".join(w.strip(".?").lower() for w in text.split() if w.strip(".?"))


def test_turns_join_messages_and_bad_entries_are_counted(tmp_path):
    path = tmp_path / "dataset.json"
    path.write_text(json.dumps(DATA))
    problems = ProblemLog()
    found = read_chitchat(path, words_only, problems)
    assert found == {"b": ["hello you there", "yes"], "a": ["fine"]}
    assert [p.detail.split(":")[0] for p in problems.problems] == ["d", "e"]


def test_the_wheel_is_read_as_it_is(tmp_path):
    path = tmp_path / "chitchat_dataset-0.9.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(MEMBER, json.dumps(DATA))
    assert read_chitchat(path)["a"] == ["...", "Fine"]


@pytest.mark.parametrize("content", [b"", b"[1]", b"{}", b"\xff\xfe", b'{"a": 1}'])
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "dataset.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match="pip download"):
        read_chitchat(path)
    with pytest.raises(InputError, match="No such file"):
        read_chitchat(tmp_path / "absent.whl")


def test_parts_do_not_share_a_conversation():
    parts = split_by_id({str(i): [str(i)] for i in range(9)}, 2)
    assert {name: [c[0] for c in part] for name, part in parts.items()} == {
        "dev": ["0", "1"], "test": ["2", "3"], "train": ["4", "5", "6", "7", "8"]
    }  # fmt: skip
    with pytest.raises(InputError, match="3 conversations"):
        split_by_id({str(i): [str(i)] for i in range(3)}, 2)
