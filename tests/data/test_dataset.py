"""Cuts to batches: the right history, whatever happened to the order of the cuts."""

import random
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from lhotse import CutSet
from lhotse.utils import fastcopy
from synthetic import DIM, make_cuts, make_data, tiny_model

from icefall_ctx.data.conversation import ConversationIndex
from icefall_ctx.data.custom import with_custom
from icefall_ctx.data.datamodule import AsrDataModule, history_options
from icefall_ctx.data.dataset import ConversationDataset, load_features
from icefall_ctx.data.history import HistoryOptions, HistoryReader, copy_key
from icefall_ctx.errors import InputError

SPEEDS = ("", "_sp0.9", "_sp1.1")


@pytest.fixture(scope="module")
def cuts(tmp_path_factory):
    return make_cuts(tmp_path_factory.mktemp("cuts"), 3, 4, seed=5, speeds=SPEEDS)


def letters(text):
    return [ord(c) for c in text]


def a_dataset(cuts, index_cuts=None, normalize=str, corruptor=None, **options):
    index = ConversationIndex.from_supervisions(index_cuts or cuts)
    history = HistoryReader(HistoryOptions(**options), index, cuts, corruptor)
    return ConversationDataset(letters, normalize, DIM, history, seed=1)


def text_of(cuts, utt_id):
    return next(c.supervisions[0].text for c in cuts if c.id == utt_id)


def test_a_turn_follows_the_copy_of_its_own_speed(cuts):
    """Three turns at three speeds, shuffled and filtered: the previous is the same copy."""
    shuffled = random.Random(0).sample(cuts, len(cuts))
    dataset = a_dataset(shuffled, audio_depth=2)
    for suffix in SPEEDS:
        cut = next(c for c in shuffled if c.id == "c51-t2" + suffix)
        batch = dataset[[cut]]
        history = batch.audio_history
        last = history.levels[-1].rows[history.previous[0]]
        expected = load_features(next(c for c in cuts if c.id == "c51-t1" + suffix), DIM)
        assert torch.equal(history.features[last, : history.lens[last]], expected)


def test_the_history_of_a_set_that_was_filtered_is_that_of_the_whole(cuts):
    few = [c for c in cuts if "-t3" in c.id]
    dataset = a_dataset(few, index_cuts=cuts, sentences=2)
    cut = next(c for c in few if c.id == "c50-t3_sp1.1")
    tokens, lens = dataset[[cut]].history.tokens[0], dataset[[cut]].history.lens[0]
    said = [bytes(t[:n].tolist()).decode() for t, n in zip(tokens, lens)]
    assert said == [text_of(cuts, "c50-t1"), text_of(cuts, "c50-t2")]


def test_chains_load_each_turn_once_and_begin_with_a_repeat(cuts):
    plain = [c for c in cuts if "_sp" not in c.id and c.id.startswith("c50")]
    dataset = a_dataset(cuts, audio_depth=2)
    history = dataset[plain].audio_history
    first, second = history.levels
    # turns 0..3 have the pasts (-, 0), (0, 0), (0, 1), (1, 2)
    assert history.features.size(0) == 3
    assert sorted(first.rows.tolist()) == [0, 1]
    pairs = [
        (int(first.rows[p]) if (p := int(second.previous[i])) >= 0 else None, int(second.rows[i]))
        for i in history.previous
    ]
    assert pairs == [(None, 0), (0, 0), (0, 1), (1, 2)]


def test_a_missing_neighbour_is_absent_and_counted(cuts, caplog):
    kept = [c for c in cuts if c.id != "c50-t1_sp0.9"]
    dataset = a_dataset(kept, index_cuts=cuts, audio_depth=2)
    lacking = next(c for c in kept if c.id == "c50-t2_sp0.9")
    complete = next(c for c in kept if c.id == "c50-t2")
    history = dataset[[lacking, complete]].audio_history
    assert history.previous.tolist() == [-1, 0]
    assert dataset[[lacking]].audio_history is None
    assert dataset.history.missing(kept) == 1
    dataset.history.report_missing(kept)
    assert f"1 of {len(kept)} utterances" in caplog.text


def test_a_broken_chain_keeps_what_is_connected(cuts):
    kept = [c for c in cuts if c.id != "c50-t1"]
    dataset = a_dataset(kept, index_cuts=cuts, audio_depth=3)
    cut = next(c for c in kept if c.id == "c50-t3")
    history = dataset[[cut]].audio_history
    assert len(history.levels) == 1, "t0 cannot reach t3 without t1"
    assert history.previous.tolist() == [0]


@pytest.mark.parametrize(
    "speakers, expected", [("same", ["c50-t1"]), ("other", ["c50-t0", "c50-t2"])]
)
def test_history_of_chosen_speakers(cuts, speakers, expected):
    dataset = a_dataset(cuts, sentences=2, speakers=speakers)
    cut = next(c for c in cuts if c.id == "c50-t3")
    history = dataset[[cut]].history
    said = [bytes(t[:n].tolist()).decode() for t, n in zip(history.tokens[0], history.lens[0]) if n]
    assert said == [text_of(cuts, utt_id) for utt_id in expected]
    assert history.same_speaker[0][history.lens[0] > 0].unique().tolist() == [speakers == "same"]


def test_first_turns(cuts):
    first = next(c for c in cuts if c.id == "c50-t0")
    assert not a_dataset(cuts, sentences=2)[[first]].history.has_history.any()
    repeated = a_dataset(cuts, sentences=2, first_text="repeat")[[first]].history
    own = letters(first.supervisions[0].text)
    assert repeated.tokens[0, -1, : len(own)].tolist() == own


def test_dropped_history_is_neither_read_nor_heard(cuts):
    dataset = a_dataset(cuts, sentences=2, audio_depth=1, drop=1.0)
    batch = dataset[cuts[:6]]
    assert not batch.history.has_history.any() and batch.audio_history is None
    rare = a_dataset(cuts, sentences=1, drop=0.3)
    later = [c for c in cuts if "-t0" not in c.id]
    counts = []
    for epoch in range(40):
        rare.set_epoch(epoch)
        counts.append(int((~rare[later].history.has_history).sum()))
    assert 0.2 < sum(counts) / (40 * len(later)) < 0.4


def test_random_histories_depend_on_seed_epoch_and_cut_only(tmp_path):
    model = tiny_model(text_context="conditional")
    data = make_data(tmp_path, model, history_noise=0.5)
    dataset = data.dataset(training=True)
    dataset.set_epoch(3)
    together = dataset[data.train_cuts]
    for i in reversed(range(len(data.train_cuts))):
        alone = dataset[[data.train_cuts[i]]].history
        n = alone.tokens.size(2)
        width = int(together.history.lens[i].sum())
        assert int(alone.lens.sum()) == width
        assert torch.equal(
            together.history.tokens[i][together.history.mask[i]], alone.tokens[0][alone.mask[0]]
        ), n
    dataset.set_epoch(4)
    other = dataset[data.train_cuts].history
    assert not torch.equal(other.lens, together.history.lens) or not torch.equal(
        other.tokens, together.history.tokens
    )


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_change_nothing(tmp_path, workers):
    model = tiny_model(text_context="attention", attention="context")
    data = make_data(tmp_path, model, SPEEDS, history_noise=0.5, history_drop=0.2)
    several = AsrDataModule(replace(data.data, num_workers=workers), model, data.tokenizer, seed=7)
    for a, b in zip(data.train_dataloader(2), several.train_dataloader(2)):
        assert a.cut_ids == b.cut_ids
        assert torch.equal(a.features, b.features)
        assert torch.equal(a.history.tokens, b.history.tokens)
        assert (a.audio_history is None) == (b.audio_history is None)
        if a.audio_history is not None:
            assert torch.equal(a.audio_history.previous, b.audio_history.previous)


def test_validation_has_no_noise_and_the_model_decides_what_is_read():
    from icefall_ctx.config import DataConfig, ModelConfig

    data = DataConfig(history_noise=0.4, history_drop=0.1)
    assert history_options(ModelConfig(), data, True).sentences == 0
    context = ModelConfig(text_context="conditional", history_sentences=3, attention="context")
    training = history_options(context, data, True)
    assert (training.sentences, training.noise, training.drop) == (3, 0.4, 0.1)
    validation = history_options(context, data, False)
    assert (validation.audio_depth, validation.noise, validation.drop) == (2, 0.0, 0.0)
    with pytest.raises(InputError, match="--history-noise 1.5"):
        history_options(context, DataConfig(history_noise=1.5), True)


def test_unusable_utterances_are_named_and_left_out(tmp_path, caplog):
    """Zero-length, sub-frame, or empty after normalisation: skipped, counted, training goes on."""
    model = tiny_model()
    data = make_data(tmp_path, model)
    cuts = list(CutSet.from_file(tmp_path / "train.jsonl.gz"))
    cuts[0].supervisions[0].text = "[noise]"
    cuts[1].supervisions[0].text = ""
    cuts[2] = cuts[2].truncate(duration=0.02)
    CutSet.from_cuts(cuts).to_file(tmp_path / "odd.jsonl.gz")
    options = replace(data.data, train_cuts="odd.jsonl.gz", normalizer="swbd", drop_duration=0.37)
    odd = AsrDataModule(options, model, data.tokenizer)
    long = [c.id for c in cuts[3:] if c.duration > 0.37]
    assert {c.id for c in odd.train_cuts} == {c.id for c in cuts[3:]} - set(long)
    for cut in cuts[:3]:
        assert cut.id in caplog.text
    assert "2 without text" in caplog.text and "1 shorter than --min-duration" in caplog.text


def test_several_files_of_training_cuts(tmp_path):
    model = tiny_model()
    data = make_data(tmp_path, model)
    two = replace(data.data, train_cuts="train.jsonl.gz,valid.jsonl.gz")
    cuts = AsrDataModule(two, model, data.tokenizer).train_cuts
    assert [c.id for c in cuts] == [c.id for c in data.train_cuts + data.valid_cuts]
    missing = replace(data.data, train_cuts="train.jsonl.gz,none.jsonl.gz")
    with pytest.raises(InputError, match="none.jsonl.gz"):
        AsrDataModule(missing, model, data.tokenizer).train_cuts


def test_short_or_broken_features_leave_the_batch(cuts, monkeypatch, caplog):
    def broken(cut, dim):
        features = load_features(cut, dim)
        if cut.id == "c50-t0":
            return features[:3]
        if cut.id == "c50-t1":
            features[2, 1] = float("nan")
        return features

    monkeypatch.setattr("icefall_ctx.data.dataset.load_features", broken)
    plain = [c for c in cuts if "_sp" not in c.id]
    dataset = a_dataset(cuts, audio_depth=1)
    batch = dataset[plain]
    assert set(batch.cut_ids) == {c.id for c in plain} - {"c50-t0", "c50-t1"}
    assert batch.audio_history.previous[batch.cut_ids.index("c50-t2")] == -1
    assert "c50-t0: skipped" in caplog.text and "c50-t1: skipped" in caplog.text
    assert dataset[plain[:2]] is None


def test_features_of_another_dimension_are_refused(cuts):
    with pytest.raises(InputError, match="have 8 dimensions, the model expects 83"):
        load_features(cuts[0], 83)


def test_features_are_computed_where_none_are_stored(tmp_path):
    import soundfile
    from lhotse import MonoCut, Recording, SupervisionSegment

    wave = np.random.default_rng(0).standard_normal(8000).astype(np.float32) * 0.1
    soundfile.write(str(tmp_path / "a.wav"), wave, 8000)
    custom = {"utt_id": "u", "conv_id": "c", "turn": 0, "prev": []}
    cut = MonoCut(
        "u", 0.0, 1.0, 0, recording=Recording.from_file(tmp_path / "a.wav"),
        supervisions=[SupervisionSegment("u", "a", 0.0, 1.0, text="x", custom=custom)],
    )
    batch = ConversationDataset(letters, str, 83)[[cut]]
    assert batch.features.shape == (1, 100, 83)
    assert load_features(cut, 80).shape == (100, 80)


def test_test_batches_know_no_other_turn(tmp_path):
    model = tiny_model(text_context="conditional", attention="context")
    data = make_data(tmp_path, model)
    batches = list(data.test_dataloader(data.all_valid_cuts, batch_size=2))
    assert [len(b) for b in batches] == [2, 2, 2]
    assert all(b.history is None and b.audio_history is None for b in batches)
    assert batches[1].turns == [1, 1]


def test_an_utterance_far_longer_than_in_training_is_named(tmp_path, caplog):
    data = make_data(tmp_path, tiny_model())
    cuts = data.all_valid_cuts
    longest = max(cut.duration for cut in cuts)
    data.data = replace(data.data, drop_duration=longest / 10)
    data.test_dataloader(cuts)
    assert not caplog.records
    data.test_dataloader([*cuts, replace(cuts[0], id="speech", duration=longest * 1.1)])
    (record,) = caplog.records
    assert record.getMessage().startswith("speech: ")
    assert "more than 10 times what was trained on" in caplog.text


def test_keys_need_links(cuts):
    bare = replace(cuts[0], supervisions=[replace(cuts[0].supervisions[0], custom=None)])
    with pytest.raises(InputError, match="run icefall-ctx link"):
        copy_key(bare)
    with pytest.raises(InputError, match="holds 0 supervisions"):
        copy_key(replace(cuts[0], supervisions=[]))


@pytest.mark.parametrize(
    "name, message", [("", "set --train-cuts"), ("no.jsonl.gz", "no such file")]
)
def test_missing_manifests_are_one_line(tmp_path, name, message):
    data = make_data(tmp_path, tiny_model(), train_cuts=name)
    with pytest.raises(InputError, match=message):
        data.train_cuts


def with_vectors(cuts, dim):
    return [
        fastcopy(c, supervisions=[with_custom(c.supervisions[0], ivector=[0.5] * dim)])
        for c in cuts
    ]


def test_speaker_vectors_are_those_of_the_turns_and_of_their_history(cuts):
    some = with_vectors(cuts, 3)
    index = ConversationIndex.from_supervisions(some)
    history = HistoryReader(HistoryOptions(audio_depth=1), index, some)
    make = partial(ConversationDataset, letters, str, DIM, history, speaker_features="ivector")
    batch = make(speaker_dim=3)[some[:2]]
    assert batch.speaker_features.shape == (2, 3)
    assert batch.audio_history.speaker.shape == (len(batch.audio_history.lens), 3)
    with pytest.raises(InputError, match="its ivector has 3 dimensions.*--speaker-dim 3"):
        make(speaker_dim=100)[some[:2]]
    with pytest.raises(InputError, match="has no ivector"):
        make(speaker_dim=3)[cuts[:2]]


@pytest.mark.parametrize("damage", [None, b"", b"no archive"])
def test_features_that_are_gone_are_named(tmp_path, damage):
    """Moved, cut off, overwritten: as where a recipe is run from another folder."""
    cut = next(iter(make_cuts(tmp_path, 1, 1, seed=5)))
    archive = Path(cut.features.storage_path) / cut.features.storage_key
    archive.unlink()
    if damage is not None:
        archive.write_bytes(damage)
    with pytest.raises(InputError, match=f"{cut.id}: its features cannot be read .*prepare.sh"):
        load_features(cut, DIM)
