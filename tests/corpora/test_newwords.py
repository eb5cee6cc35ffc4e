import lhotse
import pytest
from lhotse import SupervisionSegment
from make_newwords import TRAIN, make_newwords

from icefall_ctx.corpora.newwords import (
    choose_new_words,
    held_out_words,
    prepare_newwords,
    remove_utterances_with,
)
from icefall_ctx.errors import InputError, ProblemLog


def utterance(name, text, duration=3.0, speaker="s"):
    return SupervisionSegment(name, name, 0.0, duration, text=text, speaker=speaker)


def test_all_sources(tmp_path):
    problems = ProblemLog()
    parts = prepare_newwords(make_newwords(tmp_path), problems=problems)
    assert sorted(parts) == ["dev", "new_words", "test", "train"]
    for manifests in parts.values():
        lhotse.validate_recordings_and_supervisions(**manifests)
    by_source = {}
    for supervision in parts["train"]["supervisions"]:
        by_source.setdefault(supervision.id.split("-")[0], []).append(supervision.text.lower())
    assert sorted(by_source) == [
        "commonvoice", "europarl_st", "how2", "librispeech", "mustc", "tedlium3"
    ]  # fmt: skip
    # MuST-C in English, not in German; each Europarl speech once although translated twice
    assert by_source["mustc"] == [TRAIN, TRAIN]
    assert by_source["europarl_st"] == by_source["how2"] == by_source["librispeech"] == [TRAIN]
    assert all(s.id.startswith("tedlium3-") for s in parts["test"]["supervisions"])
    assert not problems


def test_new_words_by_the_rule(tmp_path):
    parts = prepare_newwords(make_newwords(tmp_path), tmp_path / "out")
    assert (tmp_path / "out/new_words.txt").read_text() == "blorptastic\nzwiebelfisch\n"
    words = {s.custom["new_word"]: s.text.lower() for s in parts["new_words"]["supervisions"]}
    assert set(words) == {"zwiebelfisch", "blorptastic"}  # not quagga and dodo: two in one
    for word, text in words.items():
        assert word in text
    known = " ".join(s.text.lower() for s in parts["train"]["supervisions"])
    assert not any(word in known for word in words)
    taken = {s.id for s in parts["new_words"]["supervisions"]}
    assert taken.isdisjoint(s.id for s in parts["dev"]["supervisions"])


def test_some_sources_are_enough(tmp_path):
    folders = make_newwords(tmp_path)
    parts = prepare_newwords({"librispeech": folders["librispeech"]})
    assert sorted(parts) == ["dev", "new_words", "train"]
    with pytest.raises(InputError, match="source 'x' is not one of"):
        prepare_newwords({"x": tmp_path})
    with pytest.raises(InputError, match="no such folder"):
        prepare_newwords({"how2": tmp_path / "x"})
    with pytest.raises(InputError, match="has a part for training"):
        prepare_newwords({"mustc": tmp_path / "librispeech"})


def test_choice():
    known = {"we", "saw", "a", "the"}
    candidates = [
        utterance("a", "We saw a quagga"),
        utterance("b", "the quagga"),  # the same word
        utterance("c", "we saw dodos, quokkas"),  # two
        utterance("d", "a yak"),  # too short
        utterance("e", "we saw it's"),  # no plain word
        utterance("f", "the numbat, the numbat"),  # twice
        utterance("g", "a bilby", duration=21.0),  # too long
        utterance("h", "the tarsier"),
        utterance("i", ""),
    ]
    chosen = choose_new_words(candidates, known)
    assert sorted(word for word, _ in chosen) == ["quagga", "tarsier"]
    assert choose_new_words(candidates[::-1], known) == chosen  # order does not matter
    assert len(choose_new_words(candidates, known, num_words=1)) == 1


def test_words_can_be_held_out_of_a_corpus():
    corpus = [utterance(str(i), f"say floda {i}", speaker=f"s{i % 2}") for i in range(4)]
    corpus += [utterance("x", "say yes"), utterance("y", "say lonely")]
    assert held_out_words(corpus, max_count=5) == {"floda"}
    kept = remove_utterances_with(corpus, {"floda"})
    assert [s.id for s in kept] == ["x", "y"]


def test_damaged_sources(tmp_path):
    folders = make_newwords(tmp_path)
    (folders["commonvoice"] / "en/clips/a.wav").unlink()
    yaml_path = folders["mustc"] / "en-de/data/dev/txt/dev.yaml"
    yaml_path.write_text("- {unfinished")
    train_yaml = folders["mustc"] / "en-de/data/train/txt/train.yaml"
    train_yaml.write_text(train_yaml.read_text() + "- {duration: x, offset: 1}\n- text\n")
    segments = folders["europarl_st"] / "en/de/train/segments.lst"
    segments.write_text("en.train 0.50\n" + segments.read_text())
    problems = ProblemLog()
    prepare_newwords(folders, problems=problems)
    counts = problems.counts()
    assert counts["unusable audio"] == counts["turn without audio"] == 1
    assert counts["unreadable file"] == 1
    assert counts["segment without times or audio"] == 2
    assert counts["not 'speech start end'"] == 1
