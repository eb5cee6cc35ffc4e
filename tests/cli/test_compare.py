"""``icefall-ctx compare`` on result files in folders as decoding leaves them."""

import json

import pytest
from click.testing import CliRunner

from icefall_ctx.cli.compare import compare
from icefall_ctx.errors import InputError
from icefall_ctx.score.results import store_transcripts
from icefall_ctx.score.wer import Utterance


@pytest.fixture(scope="module")
def exp(tmp_path_factory):
    """Six calls of a clear and a noisy turn; base_s1, base_s2, and a system with history."""
    folder = tmp_path_factory.mktemp("exp")
    lines = []
    for call in range(6):
        for turn, side in enumerate(("caller", "readback")):
            snr = -1.0 - call if turn else 20.0
            custom = {"conv_id": f"c{call}", "side": side, "turn": turn, "snr": snr}
            item = dict(id=f"c{call}-{turn}", recording_id=f"c{call}", start=turn, duration=1.0)
            lines.append(json.dumps(dict(item, channel=turn, speaker="s", custom=custom)))
    (folder / "cuts.jsonl").write_text("\n".join(lines) + "\n")

    def write(name, wrong):
        utterances = [
            Utterance(
                f"c{call}-{turn}", ["a", "b"], ["a", "x" if turn and call < wrong else "b"]
            )
            for call in range(6)
            for turn in (0, 1)
        ]
        store_transcripts(folder / name, utterances)

    write("base_s1/beam/recogs-test-beam5.txt", 6)
    write("base_s2/beam/recogs-test-beam5.txt", 4)
    write("hist_s1/beam/recogs-test-beam5-history-hyp.txt", 2)
    write("hist_s1/beam/recogs-test-beam5.txt", 3)
    write("audit/recogs-test-hyp.txt", 1)
    return folder


def arguments(exp, *more, baseline="{0}/base_s1,{0}/base_s2", cuts="cuts.jsonl"):
    options = ["--baseline", baseline.format(exp), "--cuts", exp / cuts, "--bootstrap", 200, *more]
    return [str(option).replace("EXP", str(exp)) for option in options]


def run(*args, **kwargs) -> str:
    result = CliRunner().invoke(compare, arguments(*args, **kwargs), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


HISTORY = ("--system", "EXP/hist_s1@beam5-history-hyp")


def test_markdown(exp):
    output = run(exp, *HISTORY, "--system", "plain=EXP/hist_s1")
    assert "| base                   |     2 | 20.83 (16.67 to 25.00) |" in output
    assert "| hist beam5-history-hyp |     1 |" in output and "| plain " in output
    assert "-60.0 %" in output and "over 6 conversations" in output


def test_json(exp):
    result = json.loads(run(exp, *HISTORY, "--json"))
    assert result["conversations"] == 6 and result["baseline"] == "base"
    noisy = result["systems"][1]["groups"]["readback"]
    assert noisy["rates"] == pytest.approx([2 / 12])
    assert noisy["against_baseline"]["relative"] == pytest.approx(-0.6)
    assert result["systems"][0]["files"][0].endswith("base_s1/beam/recogs-test-beam5.txt")


def test_curve_over_snr(exp):
    plot = exp / "curve.png"
    output = run(exp, *HISTORY, "--by", "snr", "--bins", "-6,-3,0", "--plot", plot)
    assert "-6 to -3 dB, 6 words" in output and "6 utterances, SNR 20.0 to 20.0 dB" in output
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_one_side_and_a_file_in_place_of_a_folder(exp):
    output = run(exp, "--system", "audit=EXP/audit/recogs-test-hyp.txt", "--side", "readback")
    assert "all, 12 words, 6 conv." in output and "caller" not in output


@pytest.mark.parametrize(
    "options, message",
    [
        (("--system", "EXP/none"), "no such folder of an experiment"),
        (("--system", "EXP/hist_s1@beam9"), "there are @beam5, @beam5-history-hyp"),
        (("--system", "EXP/hist_s1", "--test-set", "dev"), "no recogs-dev-"),
        (("--system", "EXP", "--suffix", "beam5"), "one folder below"),
        ((*HISTORY, "--side", "callr"), "sides are: caller, readback"),
        ((*HISTORY, "--by", "snr"), "needs bins; here it is -6.0 to 20.0 dB"),
        ((*HISTORY, "--by", "snr", "--bins", "3,1"), "rising numbers"),
        ((*HISTORY, "--bins", "1,3"), "are of --by snr"),
    ],
)
def test_what_cannot_work_is_said_in_one_line(exp, options, message):
    with pytest.raises(InputError, match=message) as error:
        run(exp, *options)
    assert "\n" not in str(error.value)


def test_results_of_another_test_set(exp):
    (exp / "few.jsonl").write_text((exp / "cuts.jsonl").read_text().splitlines()[0] + "\n")
    with pytest.raises(InputError, match="c0-1 is not in .*few.jsonl"):
        run(exp, *HISTORY, cuts="few.jsonl")


@pytest.mark.parametrize(
    "options, message",
    [
        (("--system", "EXP/base_s1,EXP/base_s1"), "is named twice"),
        (("--system", "x=@beam"), "names no folder"),
        ((*HISTORY, "--by", "sid"), "'sid' is not one of"),
        ((*HISTORY, "--by", "snr", "--bins", "a,b"), "not numbers of dB"),
    ],
)
def test_options_that_are_mistyped(exp, options, message):
    result = CliRunner().invoke(compare, arguments(exp, *options))
    assert result.exit_code == 2 and message in result.output


def test_a_file_in_two_places(exp, tmp_path):
    for name in ("beam", "audit"):
        store_transcripts(tmp_path / name / "recogs-test-beam5.txt", [Utterance("u", [], [])])
    with pytest.raises(InputError, match="name the folder that is meant"):
        run(exp, "--system", tmp_path)
