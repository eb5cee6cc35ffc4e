"""Readers of one's own calls: every format, sound and damaged."""

import json
import sys

import pytest
from tree import voices, write_sphere, write_text, write_wav

from icefall_ctx.corpora.importing import guess_format, read_calls
from icefall_ctx.errors import InputError, ProblemLog

RATE = 8000


def write_calls(root, names=("c1",), channels=2, seconds=4.0):
    for number, name in enumerate(names):
        write_wav(root / f"{name}.wav", voices(channels, seconds, RATE, number), RATE)


def turns(manifests):
    return [
        (s.recording_id, s.channel, s.speaker, round(s.start, 3), round(s.end, 3), s.text)
        for s in manifests["supervisions"]
    ]


# ------------------------------------------------------------------------------ Kaldi


def kaldi(root, **files):
    for name, text in files.items():
        write_text(root / name.replace("wav_scp", "wav.scp"), text)


def test_kaldi_directory(tmp_path):
    write_calls(tmp_path / "audio", ["a", "b"], channels=1)
    kaldi(
        tmp_path / "data",
        wav_scp=f"a {tmp_path}/audio/a.wav\nb {tmp_path}/audio/b.wav\n",
        segments="u1 a 0.00 1.50\n\nu2 a 1.50 -1\nu3 b 0.5 1\n",
        text="u1 HELLO THERE\nu2 GOOD  MORNING\nu3 YES\n",
        utt2spk="u1 ann\nu2 bob\nu3 ann\n",
        spk2gender="ann f\nbob m\n",
    )
    problems = ProblemLog()
    manifests, met = read_calls(tmp_path / "data", problems=problems)
    assert turns(manifests) == [
        ("a", 0, "ann", 0.0, 1.5, "HELLO THERE"),
        ("a", 0, "bob", 1.5, 4.0, "GOOD  MORNING"),
        ("b", 0, "ann", 0.5, 1.0, "YES"),
    ]
    assert met == 3 and not problems
    assert [s.gender for s in manifests["supervisions"]] == ["female", "male", "female"]


def test_kaldi_five_columns_blank_lines_and_missing_parts(tmp_path):
    write_calls(tmp_path / "audio")
    kaldi(
        tmp_path / "data",
        wav_scp=f"c1 {tmp_path}/audio/c1.wav\n",
        segments="\nu1 c1 0.0 1.0 A\nu2 c1 1.0 2.0 B\nu3 c1 2 3 1\nonly c1 3 4 A\nbad c1 x 4\n",
        text="u1 one\n\nu2 two\nu3 three\ntext_only four\n",
        utt2spk="u1 ann\nu2 bob\n",
    )
    problems = ProblemLog()
    manifests, _ = read_calls(tmp_path / "data", problems=problems)
    assert [(t[1], t[2], t[5]) for t in turns(manifests)] == [
        (0, "ann", "one"),
        (1, "bob", "two"),
        (0, "c1", "three"),
    ]
    counts = problems.counts()
    assert counts["utterance without text"] == 1
    assert counts["text without audio"] == 1
    assert counts["utterance without speaker"] == 1
    assert counts["bad time"] == 1
    place = next(p.place for p in problems.problems if p.kind == "bad time")
    assert place.endswith("segments:6")


def test_kaldi_sides_of_a_call_are_one_conversation(tmp_path):
    write_calls(tmp_path / "audio", ["sw1-A", "sw1-B"], channels=1)
    kaldi(
        tmp_path / "data",
        wav_scp="sw1-A sph2pipe -p -c 1 sw1.sph |\nsw1-B sph2pipe -p -c 2 sw1.sph |\n",
        reco2file_and_channel="sw1-A sw1 A\nsw1-B sw1 B\n",
        segments="u1 sw1-A 0 1\nu2 sw1-B 1 2\n",
        text="u1 one\nu2 two\n",
        utt2spk="u1 u1\nu2 u2\n",
    )
    manifests, _ = read_calls(tmp_path / "data", audio_dir=tmp_path / "audio")
    assert [s.custom for s in manifests["supervisions"]] == [
        {"conv_id": "sw1", "side": "A"},
        {"conv_id": "sw1", "side": "B"},
    ]


def test_kaldi_commands_run_only_if_allowed(tmp_path):
    write_calls(tmp_path, ["a"], channels=1, seconds=1.0)
    command = f"{sys.executable} -c \"print(end='')\" ; cat {tmp_path}/a.wav |"
    kaldi(tmp_path / "data", wav_scp=f"u1 {command}\n", text="u1 one\n")
    with pytest.raises(InputError, match="1 audio is a command"):
        read_calls(tmp_path / "data", audio_dir=tmp_path / "data")
    manifests, _ = read_calls(tmp_path / "data", run_commands=True)
    (recording,) = manifests["recordings"]
    assert recording.num_samples == RATE
    assert recording.load_audio().shape == (1, RATE)
    kaldi(tmp_path / "data", wav_scp="u1 no_such_program_x |\n")
    with pytest.raises(InputError, match="1 unusable audio"):
        read_calls(tmp_path / "data", run_commands=True)


def test_kaldi_directory_of_lhotse(shared_data):
    with pytest.raises(InputError, match="38 audio is a command"):
        read_calls(shared_data / "formats" / "kaldi")


# -------------------------------------------------------------------- STM, RTTM + CTM


def test_stm_with_sphere_audio(tmp_path):
    write_sphere(tmp_path / "c1.sph", voices(2, 4.0, RATE), RATE, "ulaw")
    write_text(
        tmp_path / "ref.stm",
        ";; comment\nc1 A ann 0.5 1.5 <o,f0> hello\nc1 B bob 1.2 1.9 yes\n"
        "c1 A x 2 3 IGNORE_TIME_SEGMENT_IN_SCORING\nc1 C ann 3 3.5 lost\nc9 A ann 0 1 gone\n",
    )
    problems = ProblemLog()
    manifests, met = read_calls(tmp_path, problems=problems)
    assert turns(manifests) == [
        ("c1", 0, "ann", 0.5, 1.5, "hello"),
        ("c1", 1, "bob", 1.2, 1.9, "yes"),
    ]
    assert problems.counts() == {
        "no audio file": 1,
        "unknown channel": 1,
        "turn without audio": 1,
    }


def test_rttm_and_ctm_words_go_to_the_turn_of_their_channel(tmp_path):
    write_calls(tmp_path)
    write_text(
        tmp_path / "a.rttm",
        "SPEAKER c1 1 0.0 2.0 <NA> <NA> ann <NA> <NA>\n"
        "SPEAKER c1 2 1.5 1.0 <NA> <NA> bob <NA> <NA>\n"
        "SPEAKER c1 1 3.0 0.5 <NA> <NA> ann <NA> <NA>\n",
    )
    write_text(
        tmp_path / "a.ctm",
        "c1 1 0.1 0.3 good 0.9\nc1 1 1.6 0.3 morning\nc1 2 1.6 0.3 hi\nc1 1 3.1 0.1 bye\n"
        "c1 2 3.1 0.1 lost\n",
    )
    problems = ProblemLog()
    manifests, _ = read_calls(tmp_path, problems=problems)
    assert turns(manifests) == [
        ("c1", 0, "c1-ann", 0.0, 2.0, "good morning"),
        ("c1", 1, "c1-bob", 1.5, 2.5, "hi"),
        ("c1", 0, "c1-ann", 3.0, 3.5, "bye"),
    ]
    assert [(p.kind, p.place) for p in problems.problems] == [
        ("word outside every turn", f"{tmp_path / 'a.ctm'}:5")
    ]


def test_rttm_without_words(tmp_path):
    write_text(tmp_path / "a.rttm", "SPEAKER c1 1 0.0 2.0 <NA> <NA> ann <NA> <NA>\n")
    with pytest.raises(InputError, match="put the CTM files beside"):
        read_calls(tmp_path)


# --------------------------------------------------------------- TextGrid, JSON, text


def textgrid(tiers, end=4.0):
    lines = ['File type = "ooTextFile"', 'Object class = "TextGrid"', "", "0", str(end)]
    lines += ["<exists>", str(len(tiers))]
    for name, intervals in tiers.items():
        lines += ['"IntervalTier"', f'"{name}"', "0", str(end), str(len(intervals))]
        for start, stop, text in intervals:
            lines += [str(start), str(stop), f'"{text}"']
    return "\n".join(lines) + "\n"


def test_textgrid_tiers_are_speakers(tmp_path):
    write_calls(tmp_path)
    tiers = {"left": [(0, 1, "hello"), (1, 2, "")], "right": [(0.5, 1.5, "yes sir")]}
    write_text(tmp_path / "c1.TextGrid", textgrid(tiers))
    manifests, _ = read_calls(tmp_path)
    assert turns(manifests) == [
        ("c1", 0, "c1-left", 0.0, 1.0, "hello"),
        ("c1", 1, "c1-right", 0.5, 1.5, "yes sir"),
    ]
    manifests, _ = read_calls(tmp_path, shared_speakers=True)
    assert [t[2] for t in turns(manifests)] == ["left", "right"]


def test_textgrid_of_an_aligner_words_become_turns(tmp_path):
    write_calls(tmp_path, channels=1)
    words = [(0, 0.4, "good"), (0.5, 1, "morning"), (1, 2, ""), (2, 2.5, "hello")]
    write_text(tmp_path / "c1.TextGrid", textgrid({"ann - words": words, "ann - phones": words}))
    problems = ProblemLog()
    manifests, _ = read_calls(tmp_path, problems=problems)
    assert turns(manifests) == [
        ("c1", 0, "c1-ann", 0.0, 1.0, "good morning"),
        ("c1", 0, "c1-ann", 2.0, 2.5, "hello"),
    ]
    assert problems.counts() == {"tier passed over": 1}


def test_real_textgrids(shared_data, tmp_path):
    write_calls(tmp_path, ["michaelandsickmichael"], channels=1, seconds=53.0)
    problems = ProblemLog()
    source = shared_data / "formats/textgrid/michaelandsickmichael.TextGrid"
    manifests, met = read_calls(source, audio_dir=tmp_path, problems=problems)
    assert met == len(manifests["supervisions"]) > 3 and not problems
    assert {s.speaker for s in manifests["supervisions"]} == {
        "michaelandsickmichael-michael",
        "michaelandsickmichael-sickmichael",
    }


SEGMENTS = [
    {"channel": 1, "start_ms": 100, "offset_ms": 2100, "duration_ms": 900, "text": "hello"},
    {"channel": 2, "start_ms": 1200, "offset_ms": 1200, "duration_ms": 500, "text": "hi"},
]


@pytest.mark.parametrize("place", ["{side}/c1.wav", "c1-{side}.wav", "c1_{side}.wav"])
def test_json_one_file_a_side_and_two_clocks(tmp_path, place):
    for side in (1, 2):
        path = tmp_path / "audio" / place.format(side=side)
        write_wav(path, voices(1, 4.0, RATE, side), RATE)
    write_text(tmp_path / "c1.json", json.dumps(SEGMENTS))
    manifests, _ = read_calls(tmp_path)
    assert turns(manifests) == [
        ("c1-1", 0, "c1-1", 2.1, 3.0, "hello"),
        ("c1-2", 0, "c1-2", 1.2, 1.7, "hi"),
    ]
    assert [s.custom["conv_start"] for s in manifests["supervisions"]] == [0.1, 1.2]
    assert {s.custom["conv_id"] for s in manifests["supervisions"]} == {"c1"}


def test_json_in_seconds_with_a_two_channel_file(tmp_path):
    write_calls(tmp_path)
    segments = [
        {"speaker": "B", "start": 1.0, "end": 2.0, "text": "yes"},
        {"speaker": "A", "start": 0.0, "duration": 1.5, "text": "well"},
        {"speaker": "A", "text": "no times"},
        "what",
    ]
    write_text(tmp_path / "c1.json", json.dumps({"segments": segments}))
    problems = ProblemLog()
    manifests, _ = read_calls(tmp_path, problems=problems)
    assert turns(manifests) == [
        ("c1", 0, "c1-A", 0.0, 1.5, "well"),
        ("c1", 1, "c1-B", 1.0, 2.0, "yes"),
    ]
    assert problems.counts()["segment without times or side"] == 2


def test_folder_of_calls_with_different_transcripts(tmp_path):
    write_calls(tmp_path, ["c1", "c2", "c3"])
    write_text(tmp_path / "c1.txt", "# call\n0.5 1.5 A: hello\n1.0 2.0 B: yes\nnonsense\n")
    write_text(tmp_path / "c2.txt", "[0.5,1.5]\tann\tf\thello\n[1,2]\tbob\tm\tyes\n")
    problems = ProblemLog()
    manifests, _ = read_calls(tmp_path, problems=problems)
    assert turns(manifests) == [
        ("c1", 0, "c1-A", 0.5, 1.5, "hello"),
        ("c1", 1, "c1-B", 1.0, 2.0, "yes"),
        ("c2", 0, "c2-ann", 0.5, 1.5, "hello"),
        ("c2", 1, "c2-bob", 1.0, 2.0, "yes"),
    ]
    assert problems.counts()["call without a transcript"] == 1
    assert problems.counts()["not 'start end A: text'"] == 1


# ------------------------------------------------------------------- times and files


def test_two_decimals_contiguous_segments_all_stay(tmp_path):
    """1,105 segments that touch, with times rounded to two decimals."""
    count = 1105
    write_calls(tmp_path, channels=1, seconds=0.07 * count)
    edges = [f"{0.07 * i:.2f}" for i in range(count + 1)]
    lines = [f"c1 1 ann {edges[i]} {edges[i + 1]} word{i}" for i in range(count)]
    write_text(tmp_path / "c1.stm", "\n".join(lines))
    problems = ProblemLog()
    manifests, met = read_calls(tmp_path, problems=problems)
    assert met == len(manifests["supervisions"]) == count and not problems


@pytest.mark.parametrize(
    "end, kind",
    [
        (4.005, "trimmed to the recording"),
        (4.5, "trimmed to the recording"),
        (9, "outside the recording"),
    ],
)
def test_end_after_the_audio(tmp_path, end, kind):
    write_calls(tmp_path, channels=1)
    write_text(tmp_path / "c1.stm", f"c1 1 ann 1 2 fine\nc1 1 ann 3 {end} late\n")
    problems = ProblemLog()
    manifests, _ = read_calls(tmp_path, problems=problems)
    assert [(p.kind, p.place) for p in problems.problems] == [(kind, f"{tmp_path / 'c1.stm'}:2")]
    kept = turns(manifests)
    assert len(kept) == (1 if end == 9 else 2) and kept[-1][4] <= 4.0
    with pytest.raises(InputError, match="c1.stm:2"):
        read_calls(tmp_path, problems=ProblemLog(strict=True))


def test_short_segments_and_empty_texts_are_counted(tmp_path):
    write_calls(tmp_path, channels=1)
    write_text(tmp_path / "c1.stm", "c1 1 a 1 1 x\nc1 1 a 1 1.01 x\nc1 1 a 1 2\nc1 1 a 2 3 ok\n")
    problems = ProblemLog()
    manifests, met = read_calls(tmp_path, problems=problems)
    assert (len(manifests["supervisions"]), met) == (1, 4)
    assert problems.counts() == {"turn shorter than a frame": 2, "no speech in the text": 1}


def test_files_of_two_rates_and_damaged_ones(tmp_path):
    write_calls(tmp_path, ["a"], channels=1)
    write_wav(tmp_path / "b.wav", voices(1, 4.0, 44100), 44100)
    (tmp_path / "c.wav").write_bytes(b"RIFF")
    (tmp_path / "d.wav").write_bytes(b"")
    whole = (tmp_path / "a.wav").read_bytes()
    (tmp_path / "e.wav").write_bytes(whole[: len(whole) // 2])
    lines = [f"{name} 1 ann 2.5 3.5 hello" for name in "abcdef"]
    write_text(tmp_path / "x.stm", "\n".join(lines))
    problems = ProblemLog()
    manifests, _ = read_calls(tmp_path, problems=problems)
    assert [s.recording_id for s in manifests["supervisions"]] == ["a", "b"]
    assert {r.id: r.num_samples for r in manifests["recordings"]} == {"a": 32000, "b": 176400}
    counts = problems.counts()
    assert counts["unusable audio"] == 2  # c, d
    assert counts["outside the recording"] == 1  # e
    assert counts["no audio file"] == 1  # f


def test_guess(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_calls(tmp_path / "x")
    with pytest.raises(InputError, match="no wav.scp"):
        guess_format(tmp_path)
    write_text(tmp_path / "a.txt", "")
    assert guess_format(tmp_path) == "calls"
    write_text(tmp_path / "a.rttm", "")
    assert guess_format(tmp_path) == "calls"
    write_text(tmp_path / "a.ctm", "")
    assert guess_format(tmp_path) == "rttm-ctm"
    with pytest.raises(InputError, match="format 'x' is not one of"):
        read_calls(tmp_path, "x")
