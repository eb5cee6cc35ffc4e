import hashlib
import re
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("espeakng_loader")

from icefall_ctx.corpora import dialogue_grammar as grammar  # noqa: E402
from icefall_ctx.corpora import mini_dialog as mini  # noqa: E402
from icefall_ctx.corpora.invented_names import NameSource, draw_name  # noqa: E402

CONFIG = mini.MiniDialogConfig(train_hours=0.015, test_hours=0.005, new_words=6, new_words_dev=4)


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mini")
    parts = mini.prepare_mini_dialog(folder / "manifests", audio_dir=folder, config=CONFIG)
    return folder, parts


def invented(parts, part):
    known = {word.upper() for word in grammar.vocabulary()}
    texts = (supervision.text for supervision in parts[part]["supervisions"])
    return {word for text in texts for word in text.split()} - known


def test_same_bytes_again_with_two_jobs(rendered, tmp_path):
    mini.prepare_mini_dialog(audio_dir=tmp_path, config=CONFIG, jobs=2)
    paths = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.flac"))
    assert len(paths) > 5
    for path in paths:
        sums = {hashlib.md5((d / path).read_bytes()).hexdigest() for d in (rendered[0], tmp_path)}
        assert len(sums) == 1, path


def test_voices_and_names_are_disjoint(rendered):
    _, parts = rendered
    names = list(parts)
    assert names == ["train", "dev", "test", "newwords", "newwords_dev"]
    for i, one in enumerate(names):
        for two in names[i + 1 :]:
            speakers = [{s.speaker for s in parts[p]["supervisions"]} for p in (one, two)]
            same_voices = (one, two) == ("dev", "newwords_dev")
            assert speakers[0] and (same_voices or not speakers[0] & speakers[1])
            assert not invented(parts, one) & invented(parts, two)


def test_two_people_a_call_and_times_inside_the_recording(rendered):
    _, parts = rendered
    for manifests in parts.values():
        lengths = {recording.id: recording for recording in manifests["recordings"]}
        people = {}
        for turn in manifests["supervisions"]:
            people.setdefault(turn.recording_id, set()).add((turn.channel, turn.speaker))
            assert 0 < turn.start and turn.end < lengths[turn.recording_id].duration
            assert turn.custom["side"] == mini.SIDES[turn.channel]
            assert turn.custom["conv_id"] == turn.recording_id
            assert re.fullmatch(r"[A-Z]+( [A-Z]+)*", turn.text)
        for pair in people.values():
            assert len(pair) == 2 and len({speaker for _, speaker in pair}) == 2
    recording = next(iter(lengths.values()))
    assert recording.load_audio().shape == (2, recording.num_samples)
    assert recording.sampling_rate == mini.RATE


@pytest.mark.parametrize(
    "part, count", [("newwords", CONFIG.new_words), ("newwords_dev", CONFIG.new_words_dev)]
)
def test_new_words_one_a_sentence(rendered, part, count):
    folder, parts = rendered
    words = (folder / "manifests" / f"{part}_words.txt").read_text().split()
    sentences = [turn.text.split() for turn in parts[part]["supervisions"]]
    assert len(words) == len(set(words)) == len(sentences) == count
    assert sorted(words) == sorted(invented(parts, part))
    for sentence in sentences:
        assert len(set(sentence) & set(words)) == 1


def test_names_to_train_a_memory_on(rendered, tmp_path):
    """Voices of training, one or two names a sentence that no other part has, the rest the same."""
    config = replace(CONFIG, name_sentences=10)
    parts = mini.prepare_mini_dialog(audio_dir=tmp_path, config=config)
    assert list(parts) == ["train", "dev", "test", "newwords", "newwords_dev", "names"]
    for part, manifests in rendered[1].items():
        assert not invented(parts, part) & invented(parts, "names")
        if part == "newwords_dev":  # drawn last: its names depend on those of "names"
            continue
        assert [s.text for s in manifests["supervisions"]] == [
            s.text for s in parts[part]["supervisions"]
        ]
    turns = list(parts["names"]["supervisions"])
    known = {word.upper() for word in grammar.vocabulary()}
    counts = [len(set(turn.text.split()) - known) for turn in turns]
    assert len(turns) == 10 and set(counts) == {1, 2}
    assert sum(counts) == len(invented(parts, "names"))
    assert {t.speaker for t in turns} <= {f"espeak-{v}" for v in mini.VARIANTS["train"]}


def test_small_parts_do_not_depend_on_the_size_of_train(tmp_path):
    texts = []
    for hours in (0.01, 0.05):
        config = mini.MiniDialogConfig(train_hours=hours, test_hours=0.01)
        names = NameSource(0, grammar.vocabulary())
        mini.plan_new_words("newwords", config.new_words, names, tmp_path, config)
        texts.append(mini.plan_dialogues("test", names, tmp_path, config))
    assert texts[0] == texts[1]


def test_names_and_values_come_back_in_later_turns():
    names = NameSource(0, grammar.vocabulary())
    rng = np.random.default_rng(0)
    repeated, spelt_somewhere = 0, False
    for _ in range(100):
        turns = grammar.draw_dialogue(rng, names, name_share=1.0, spelling_share=0.5)
        words = [set(turn.text.split()) for turn in turns]
        new = set().union(*words) - grammar.vocabulary()
        assert 1 <= len(new) <= 2
        for name in new:
            mentions = [k for k, said in enumerate(words) if name in said]
            assert turns[mentions[0]].channel == 0 and len(mentions) >= 2
        spelt = [t.text.split() for t in turns if re.search(r"\b\w( \w){3}", t.text)]
        assert all("".join(t).removeprefix("thatis") in new for t in spelt)
        spelt_somewhere |= bool(spelt)
        repeated += np.mean([bool(w & set().union(*words[:k])) for k, w in enumerate(words) if k])
    assert repeated / 100 > 0.7 and spelt_somewhere


def test_no_two_names_sound_or_look_the_same_and_sounds_have_many_spellings():
    names = NameSource(1).take(3000)
    assert len({name.spelling for name in names}) == len({name.sound for name in names}) == 3000
    rng = np.random.default_rng(0)
    spellings = {}
    for _ in range(30000):
        name = draw_name(rng)
        spellings.setdefault(name.sound, set()).add(name.spelling)
    drawn_often = [found for found in spellings.values() if len(found) > 1]
    assert len(drawn_often) > 100
    taken = names[0].spelling.upper()
    assert taken.lower() not in {n.spelling for n in NameSource(1, [taken]).take(100)}


def test_no_names_when_none_are_wanted():
    rng = np.random.default_rng(0)
    names = NameSource(0)
    for _ in range(50):
        for turn in grammar.draw_dialogue(rng, names, name_share=0.0, spelling_share=1.0):
            assert set(turn.text.split()) <= grammar.vocabulary()
            assert turn.text == turn.spoken
    assert 250 <= len(grammar.vocabulary()) <= 400
