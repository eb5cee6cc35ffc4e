"""The stage on real digits: modes, silence, order, processes, archives."""

import random

import numpy as np
import pytest
import torch
from lhotse import CutSet, Fbank, FbankConfig, MonoCut, SupervisionSegment
from lhotse.features.io import LilcomChunkyWriter
from lhotse.utils import fastcopy

from icefall_ctx.errors import InputError, ProblemLog
from icefall_ctx.features.ivector import kaldi_io, stage
from icefall_ctx.features.ivector.evaluate import speaker_error_rate
from icefall_ctx.features.ivector.extractor import IvectorExtractor
from icefall_ctx.features.ivector.frontend import Frontend, FrontendConfig
from icefall_ctx.features.ivector.online import OnlineIvector
from icefall_ctx.features.ivector.sources import check_features, utterance_cuts
from icefall_ctx.features.ivector.total_variability import TotalVariabilityOptions
from icefall_ctx.features.ivector.training import TrainingOptions, train_extractor
from icefall_ctx.features.ivector.ubm import UbmOptions

SPEAKERS = ("george", "jackson", "nicolas", "theo")
OPTIONS = TrainingOptions(
    frontend=FrontendConfig(num_mel_bins=24, num_ceps=13),
    ubm=UbmOptions(num_gaussians=16, sample_iters=5, num_iters=2),
    tv=TotalVariabilityOptions(rank=12, num_iters=3, batch_size=16),
    lda_dim=3,
)


def digit_cuts(recordings, folder, indices, calls=2) -> CutSet:
    """One cut an utterance of three joined digits, with stored features and conversation links."""
    import soundfile

    extractor = Fbank(FbankConfig(sampling_rate=8000, num_filters=24))
    cuts = []
    with LilcomChunkyWriter(folder / "feats.lca") as writer:
        for speaker in SPEAKERS:
            for turn, k in enumerate(indices):
                names = [f"{(turn + d) % 10}_{speaker}_{k}.wav" for d in range(3)]
                samples = np.concatenate([soundfile.read(recordings / n)[0] for n in names])
                id_ = f"{speaker}-{k}"
                features = extractor.extract_from_samples_and_store(
                    samples[None].astype(np.float32), writer, 8000
                )
                features.recording_id, features.channels = id_, 0
                custom = {"conv_id": f"call{turn % calls}", "turn": turn, "utt_id": id_}
                supervision = SupervisionSegment(
                    id_, id_, 0, features.duration, speaker=speaker, custom=custom
                )
                cuts.append(
                    MonoCut(id_, 0, features.duration, 0, [supervision], features=features)
                )
    return CutSet.from_cuts(cuts)


@pytest.fixture(scope="module")
def world(shared_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ivector")
    recordings = shared_data / "fsdd" / "recordings"
    (folder / "a").mkdir(), (folder / "b").mkdir()
    train = digit_cuts(recordings, folder / "a", range(24))
    test = digit_cuts(recordings, folder / "b", range(30, 38))
    path = folder / "extractor.pt"
    train_extractor(train, OPTIONS).save(path)
    return folder, train, test, path


def silenced(cuts: CutSet, folder, which) -> CutSet:
    """``cuts`` with the features of the ids ``which`` at the level of digital silence."""
    result = []
    with LilcomChunkyWriter(folder / "silence.lca") as writer:
        for cut in cuts:
            if cut.id in which:
                quiet = np.full(cut.load_features().shape, -15.9, np.float32)
                key = writer.write(cut.id, quiet)
                features = fastcopy(
                    cut.features, storage_path=writer.storage_path, storage_key=key
                )
                cut = fastcopy(cut, features=features)
            result.append(cut)
    return CutSet.from_cuts(result)


def matrix_of(vectors, cuts):
    return torch.stack([vectors[cut.id] for cut in cuts])


def test_real_speakers_are_told_apart(world):
    _, _, test, path = world
    speakers = [cut.supervisions[0].speaker for cut in test]
    rates = {}
    for mode in stage.MODES:
        vectors, report = stage.extract_vectors(test, path, mode=mode)
        assert report.num_vectors == len(vectors) == 32
        assert report.from_speaker == report.from_prior == 0 and report.num_frames > 1000
        rates[mode] = speaker_error_rate(matrix_of(vectors, test), speakers).rate
    assert rates["utterance"] < 0.25
    assert rates["speaker"] == 0
    assert rates["online"] <= rates["utterance"] + 0.02


def test_training_again_gives_the_same_extractor(world):
    _, train, _, path = world
    again = train_extractor(train, OPTIONS)
    assert again.fingerprint() == IvectorExtractor.load(path).fingerprint()


@pytest.mark.parametrize("mode", stage.MODES)
def test_order_of_the_manifest_does_not_matter(world, mode):
    _, _, test, path = world
    shuffled = list(test)
    random.Random(0).shuffle(shuffled)
    one, _ = stage.extract_vectors(test, path, mode=mode)
    two, _ = stage.extract_vectors(shuffled, path, mode=mode)
    torch.testing.assert_close(matrix_of(one, test), matrix_of(two, test), atol=2e-4, rtol=1e-3)


def test_online_uses_this_and_earlier_turns_only(world):
    _, _, test, path = world
    cuts = [c for c in test if c.supervisions[0].custom["turn"] < 5]
    all_turns, _ = stage.extract_vectors(test, path, mode="online")
    first_turns, _ = stage.extract_vectors(cuts, path, mode="online")
    torch.testing.assert_close(
        matrix_of(all_turns, cuts), matrix_of(first_turns, cuts), atol=2e-4, rtol=1e-3
    )


def test_a_live_session_has_the_numbers_of_the_stage(world):
    _, _, test, path = world
    vectors, _ = stage.extract_vectors(test, path, mode="online", max_frames=150)
    extractor = IvectorExtractor.load(path)
    frontend = Frontend(extractor.frontend)
    for call in ("call0", "call1"):
        session = OnlineIvector(extractor, max_frames=150)
        turns = [c for c in test if c.supervisions[0].custom["conv_id"] == call]
        for cut in sorted(turns, key=lambda c: c.supervisions[0].custom["turn"]):
            frames = frontend(torch.from_numpy(cut.load_features())).frames
            found = session.accept(cut.supervisions[0].speaker, frames).float()
            torch.testing.assert_close(found, vectors[cut.id], atol=2e-4, rtol=1e-3)


def test_forgetting_limit_holds_for_a_two_hour_speaker(world):
    """Memory of a session does not grow, and new speech outweighs two hours of old speech."""
    _, _, test, path = world
    extractor = IvectorExtractor.load(path)
    frontend = Frontend(extractor.frontend)
    by_speaker = {}
    for cut in test:
        frames = frontend(torch.from_numpy(cut.load_features())).frames
        by_speaker.setdefault(cut.supervisions[0].speaker, []).append(frames)
    old, new = by_speaker["george"], by_speaker["theo"]
    evidence = extractor.evidence([torch.cat(old)])
    session = OnlineIvector(extractor, max_frames=500)
    hours = int(2 * 360_000 / float(evidence.counts))
    for _ in range(hours):
        session.accept_evidence("x", evidence)
    assert float(session._carried["x"].counts) == pytest.approx(500)
    assert session._carried["x"].quadratic.shape == (1, 78)
    for _ in range(3):
        for frames in new:
            vector = session.accept("x", frames)
    target = extractor.vectors(extractor.evidence([torch.cat(new)]))[0]
    before = extractor.vectors(evidence)[0]
    assert torch.cosine_similarity(vector, target, 0) > torch.cosine_similarity(vector, before, 0)
    session.reset()
    assert float(session.current("x").abs().sum()) == 0


def test_silence_gets_a_defined_vector_and_is_counted(world, tmp_path):
    """One silent turn: the speaker's vector; a speaker of silence only: zeros."""
    _, _, test, path = world
    which = {"george-31", *(f"theo-{k}" for k in range(30, 38))}
    cuts = silenced(test, tmp_path, which)
    for mode in stage.MODES:
        vectors, report = stage.extract_vectors(cuts, path, mode=mode)
        assert (report.from_speaker, report.from_prior) in ((1, 8), (0, 9))
        assert all(v.isfinite().all() for v in vectors.values())
        assert float(vectors["theo-33"].abs().sum()) == 0
    speaker, _ = stage.extract_vectors(cuts, path, mode="speaker")
    utterance, report = stage.extract_vectors(cuts, path)
    assert "1 from the speaker's other utterances, 8 from the prior mean" in str(report)
    torch.testing.assert_close(utterance["george-31"], speaker["george-31"])


@pytest.mark.slow
def test_processes_give_the_same(world):
    _, _, test, path = world
    one, report = stage.extract_vectors(test, path, mode="speaker")
    two, again = stage.extract_vectors(test, path, mode="speaker", num_jobs=2)
    assert report == again
    torch.testing.assert_close(matrix_of(one, test), matrix_of(two, test), atol=2e-4, rtol=1e-3)


def test_features_of_another_kind_are_refused(world):
    _, _, test, path = world
    config = IvectorExtractor.load(path).frontend
    cut = next(iter(test))
    check_features(cut, config)
    for change in ({"type": "mfcc"}, {"num_features": 83}):
        other = fastcopy(cut, features=fastcopy(cut.features, **change))
        wanted = "mfcc with 24 .* trained on kaldi-fbank|kaldi-fbank with 83 .* trained on .* 24"
        with pytest.raises(InputError, match=wanted):
            stage.extract_vectors([other], path)
    with pytest.raises(InputError, match="no features"):
        stage.extract_vectors([fastcopy(cut, features=None)], path)


def test_one_speaker_only(world):
    _, train, _, _ = world
    george = [cut for cut in train if cut.supervisions[0].speaker == "george"]
    with pytest.raises(InputError, match="two speakers or more"):
        train_extractor(george, OPTIONS)


def test_manifest_round_trip(world, tmp_path):
    """Written vectors are found by plain Lhotse, and a failed run leaves the old ones alone."""
    _, _, test, path = world
    source, output = tmp_path / "cuts.jsonl.gz", tmp_path / "out.jsonl.gz"
    test.to_file(source)
    report = stage.extract_manifest(source, path, output, tmp_path / "v.lca", mode="speaker")
    assert report.num_vectors == 32
    vectors, _ = stage.extract_vectors(test, path, mode="speaker")
    for cut in CutSet.from_file(output):
        found = cut.supervisions[0].load_ivector()
        np.testing.assert_allclose(found, vectors[cut.id].numpy(), atol=2e-5)
        assert cut.supervisions[0].custom["turn"] is not None
    assert "ivector" not in next(iter(test)).supervisions[0].custom
    before = (output.read_bytes(), (tmp_path / "v.lca").read_bytes())
    with pytest.raises(InputError, match="mode 'frame'"):
        stage.extract_manifest(source, path, output, tmp_path / "v.lca", mode="frame")
    assert before == (output.read_bytes(), (tmp_path / "v.lca").read_bytes())
    with pytest.raises(InputError, match=r"named \*\.lca"):
        stage.store_vectors(vectors, tmp_path / "v.npy")


def test_archives_round_trip(tmp_path):
    vectors = {f"utt-{k}": torch.randn(7) for k in (3, 1, 2)}
    kaldi_io.write_archive(vectors, tmp_path / "iv")
    for suffix in (".ark", ".scp"):
        found = kaldi_io.read_archive(tmp_path / f"iv{suffix}")
        assert sorted(found) == sorted(vectors) == list(found)
        assert all(torch.equal(found[key], vectors[key]) for key in vectors)
    text = (tmp_path / "text.ark").write_text("a [ 1 2 ]\nb [ 3 4.5 ]\n") and "text.ark"
    assert kaldi_io.read_archive(tmp_path / text)["b"].tolist() == [3, 4.5]


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("x.txt", "a [ 1 ]", "give a Kaldi archive"),
        ("x.ark", "a [ 1 2 ]\nb [ 1 ]\n", "b has 1 dimensions, others have 2"),
        ("x.ark", "a [ 1 ]\na [ 1 ]\n", "a occurs twice"),
        ("x.ark", "a [ nan ]\n", "not finite"),
        ("x.ark", "", "no vector"),
    ],
)
def test_bad_archives_are_refused(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        kaldi_io.read_archive(tmp_path / name)


def test_archive_of_speakers_and_of_unaugmented_ids(world):
    _, _, test, _ = world
    problems = ProblemLog()
    vectors = {name: torch.tensor([float(k)]) for k, name in enumerate(SPEAKERS)}
    found = kaldi_io.by_supervision(vectors, test, "speaker", problems)
    assert len(found) == 32 and found["theo-30"].tolist() == [3.0]
    fast = [next(iter(test)).map_supervisions(lambda s: _renamed(s, s.id + "_sp0.9"))]
    found = kaldi_io.by_supervision({"george-30": torch.ones(1)}, fast, "utterance", problems)
    assert list(found) == ["george-30_sp0.9"] and not problems
    kaldi_io.by_supervision({"x": torch.ones(1)}, fast, "utterance", problems)
    assert problems.counts()["no i-vector in the archive"] == 1


def _renamed(supervision, id_):
    return fastcopy(supervision, id=id_)


def test_speed_copies_are_conversations_of_their_own():
    one = SupervisionSegment("u", "r", 0, 1, custom={"conv_id": "c", "utt_id": "u"})
    two = _renamed(one, "u_sp0.9")
    assert stage.conversation_key(one) == "c" and stage.conversation_key(two) == "c_sp0.9"


def test_a_cut_of_several_supervisions_is_taken_apart(world):
    _, _, test, path = world
    cuts = list(test)[:2]
    joined = CutSet.from_cuts([cuts[0].append(cuts[1])])
    assert len(utterance_cuts(joined)) == 2
    with pytest.raises(InputError, match="no supervision"):
        utterance_cuts([])
    with pytest.raises(InputError, match="george-30: this supervision id occurs twice"):
        utterance_cuts([cuts[0], cuts[0]])


def test_features_that_are_gone_are_counted(world, caplog):
    _, _, test, path = world
    cuts = list(test)
    cuts[0] = fastcopy(cuts[0], features=fastcopy(cuts[0].features, storage_path="gone.lca"))
    vectors, report = stage.extract_vectors(cuts, path)
    assert len(vectors) == 32 and report.from_speaker == 1
    assert "features not readable" in caplog.text
