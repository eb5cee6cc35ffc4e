"""``icefall-ctx ivector`` from audio to a picture, as a user types it."""

import re

import pytest
from click.testing import CliRunner
from lhotse import CutSet, MonoCut, Recording, SupervisionSegment

from icefall_ctx.cli import cli
from icefall_ctx.errors import InputError

SMALL = (
    "--source audio --num-mel-bins 24 --num-ceps 13 --num-gaussians 8 --dim 8 --iters 2 "
    "--ubm-iters 1 --lda-dim 2"
).split()


def run(*arguments) -> str:
    result = CliRunner().invoke(cli, ["ivector", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def refused(*arguments) -> str:
    """The one line of the error that :func:`icefall_ctx.cli.main` prints."""
    with pytest.raises(InputError) as error:
        CliRunner().invoke(cli, ["ivector", *map(str, arguments)], catch_exceptions=False)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.fixture(scope="module")
def trained(shared_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    cuts = []
    for path in sorted((shared_data / "fsdd" / "recordings").glob("*_1[0-4].wav")):
        recording = Recording.from_file(path)
        supervision = SupervisionSegment(path.stem, path.stem, 0, recording.duration)
        supervision.speaker = path.stem.split("_")[1]
        cuts.append(
            MonoCut(path.stem, 0, recording.duration, 0, [supervision], recording=recording)
        )
    CutSet.from_cuts(cuts).to_file(folder / "cuts.jsonl.gz")
    output = run("train", folder / "cuts.jsonl.gz", folder / "x.pt", *SMALL)
    assert "8 diagonal Gaussians of 39 dimensions (mfcc of audio at 8000 Hz)" in output
    run("extract", folder / "cuts.jsonl.gz", folder / "x.pt", folder / "out.jsonl.gz")
    return folder


def test_inspect_tells_what_it_is(trained):
    fingerprint = re.search("fingerprint ([0-9a-f]{12})", run("inspect", trained / "x.pt"))
    assert fingerprint
    output = run("inspect", trained / "out.jsonl.gz", "--picture", trained / "p.png")
    assert "200 vectors of 2, 4 speakers" in output
    assert float(re.search(r"EER ([0-9.]+) %", output).group(1)) < 50
    assert (trained / "p.png").stat().st_size > 1000


def test_inspect_compares_conversations_and_sides(trained):
    """Five calls, their speakers in pairs; the first of each pair is the caller."""
    turns = []
    for cut in CutSet.from_file(trained / "out.jsonl.gz"):
        digit, speaker, take = cut.id.split("_")
        side = "caller" if speaker in ("jackson", "nicolas") else "other"
        cut.supervisions[0].custom.update(conv_id=f"call{take}", side=side)
        turns.append(cut)
    CutSet.from_cuts(turns).to_file(trained / "calls.jsonl.gz")
    output = run("inspect", trained / "calls.jsonl.gz")
    assert "pairs of different conversations, of 5" in output
    # 50 turns a speaker: 1225 pairs, less 5 * 45 within one call; 5 means: 10 pairs
    assert re.search(r"all, turns: +EER .*\(4000 pairs of one speaker, 12000 of two", output)
    assert re.search(r"caller, turns: +EER .*\(2000 pairs of one speaker, 2000 of two", output)
    assert re.search(r"other, means of a conversation: +EER .*\(20 pairs of one .*, 20 of", output)


def test_vectors_of_mode_speaker_have_no_error_rate(trained):
    output = trained / "speaker.jsonl.gz"
    run("extract", trained / "cuts.jsonl.gz", trained / "x.pt", output, "--mode", "speaker")
    shown = run("inspect", output, "--picture", trained / "speaker.png")
    assert "pairs of one speaker tell nothing" in shown and "EER" not in shown
    assert (trained / "speaker.png").is_file()


def test_vectors_lie_beside_the_manifest(trained):
    assert (trained / "out_ivectors.lca").is_file()
    cut = next(iter(CutSet.from_file(trained / "out.jsonl.gz")))
    assert cut.supervisions[0].load_ivector().shape == (2,)


def test_kaldi_there_and_back(trained):
    assert "200 vectors" in run("export-kaldi", trained / "out.jsonl.gz", trained / "kaldi")
    again = trained / "again.jsonl.gz"
    run("import-kaldi", trained / "cuts.jsonl.gz", trained / "kaldi.scp", again)
    pairs = zip(CutSet.from_file(trained / "out.jsonl.gz"), CutSet.from_file(again))
    for one, two in pairs:
        found = two.supervisions[0].load_ivector()
        assert abs(one.supervisions[0].load_ivector() - found).max() < 2e-5


def test_vectors_missing_in_an_archive(trained):
    archive = trained / "few.ark"
    archive.write_text("0_theo_10 [ 1 2 ]\n")
    arguments = ("import-kaldi", trained / "cuts.jsonl.gz", archive, trained / "few.jsonl.gz")
    assert "no i-vector in the archive" in refused(*arguments)
    assert not (trained / "few.jsonl.gz").exists()
    output = run(*arguments, "--allow-missing")
    assert "1 vectors; 199 problems: 199 no i-vector in the archive" in output


def test_what_cannot_work_is_said_in_one_line(trained):
    assert "no such file" in refused("train", trained / "none.jsonl.gz", trained / "y.pt")
    assert "no such extractor" in refused(
        "extract", trained / "cuts.jsonl.gz", trained / "none.pt", trained / "y.jsonl.gz"
    )
    assert "no features" in refused("train", trained / "cuts.jsonl.gz", trained / "y.pt")
    assert "carries an i-vector" in refused("inspect", trained / "cuts.jsonl.gz")
    assert "Gaussians need at least" in refused(
        "train", trained / "cuts.jsonl.gz", trained / "y.pt", *SMALL, "--num-gaussians", 2048
    )
    (trained / "bad.jsonl").write_text('{"id": "x"}\n')
    assert "bad.jsonl" in refused("inspect", trained / "bad.jsonl")
