"""Kaldi data directories for ``icefall-ctx import``."""

from __future__ import annotations

import io
import re
import shlex
import subprocess
from pathlib import Path
from typing import Optional, Tuple

import soundfile
from lhotse import AudioSource, Recording

from icefall_ctx.corpora.importing import ImportJob, reader
from icefall_ctx.errors import InputError, where
from icefall_ctx.formats.kaldi import TO_THE_END, KaldiDir, read_kaldi_dir

COMMAND_SECONDS = 600
_GENDERS = {"m": "male", "f": "female"}


@reader("kaldi", shared_speakers=True)
def read_kaldi(job: ImportJob) -> None:
    """Utterances of a data directory; the two sides of a call are linked where it names them."""
    kaldi = read_kaldi_dir(job.source, job.problems, encoding=job.encoding)
    if not kaldi.text:
        raise InputError(f"{job.source}: no file text with transcripts")
    for recording_id, entry in kaldi.wav_scp.items():
        if recording_id not in job.audio:
            _add_entry(job, recording_id, entry)
    for utt_id, text in kaldi.text.items():
        _add_utterance(job, kaldi, utt_id, text)


def _add_entry(job: ImportJob, recording_id: str, entry: str) -> None:
    """One line of ``wav.scp``: a path, or a command that ends in ``|``."""
    if entry.endswith("|"):
        added = _add_command(job, recording_id, entry.rstrip("| "))
    else:
        path, beside = Path(entry), job.source / entry
        chosen = beside if beside.exists() and not path.exists() else path
        added = job.builder.add_recording(chosen, recording_id) is not None
    if not added:
        job.missing.add(recording_id)


def _add_command(job: ImportJob, recording_id: str, command: str) -> bool:
    place = f"{job.source / 'wav.scp'}: {recording_id}"
    if not job.run_commands:
        hint = "allow it (--run-commands) or give the folder of the audio (--audio)"
        job.problems.add("audio is a command", place, hint)
        return False
    try:
        job.builder.register(recording_of_command(recording_id, command))
    except InputError as error:
        job.problems.add("unusable audio", place, str(error))
        return False
    return True


def recording_of_command(recording_id: str, command: str) -> Recording:
    """Run ``command``, which writes audio to its output, to learn how much it writes."""
    try:
        done = subprocess.run(command, shell=True, capture_output=True, timeout=COMMAND_SECONDS)
    except subprocess.TimeoutExpired:
        raise InputError(f"{command!r} ran longer than {COMMAND_SECONDS} s") from None
    if done.returncode or not done.stdout:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no output"]
        raise InputError(f"{shlex.split(command)[0]} failed: {last[0][:100]}")
    try:  # the header of a stream does not know the length
        samples, rate = soundfile.read(io.BytesIO(done.stdout), always_2d=True, dtype="int16")
    except RuntimeError as error:
        raise InputError(f"{command!r} does not write audio: {error}") from None
    source = AudioSource("command", channels=list(range(samples.shape[1])), source=command)
    return Recording(recording_id, [source], rate, len(samples), len(samples) / rate)


def _span(job: ImportJob, kaldi: KaldiDir, utt_id: str) -> Tuple[str, str, float, float, str]:
    """Place, recording, start, end and channel column of an utterance."""
    segment = kaldi.segments.get(utt_id)
    recording_id = segment.recording if segment else utt_id
    job.need_audio(recording_id)
    recording = job.builder.recordings.get(recording_id)
    whole = recording.duration if recording else 0.0
    if segment is None:
        return f"{kaldi.path / 'text'}: {utt_id}", utt_id, 0.0, whole, ""
    end = whole if segment.end == TO_THE_END else segment.end
    place = where(kaldi.path / "segments", segment.line)
    return place, recording_id, segment.start, end, segment.channel


def _file_and_side(kaldi: KaldiDir, recording_id: str) -> Tuple[Optional[str], str]:
    """The call and side of a one-sided recording, from ``reco2file_and_channel``."""
    match = re.fullmatch(r"(\S+)\s+(\S+)", kaldi.reco2file_and_channel.get(recording_id, ""))
    return match.groups() if match else (None, "")


def _add_utterance(job: ImportJob, kaldi: KaldiDir, utt_id: str, text: str) -> None:
    place, recording_id, start, end, column = _span(job, kaldi, utt_id)
    call, side = _file_and_side(kaldi, recording_id)
    recording = job.builder.recordings.get(recording_id)
    channel = 0
    if recording is not None and recording.num_channels > 1:
        name = column or side
        channel = {"A": 0, "B": 1}.get(name.upper(), int(name) - 1 if name.isdigit() else 0)
    speaker = kaldi.utt2spk.get(utt_id) or recording_id
    custom = {} if call is None else {"conv_id": call, "side": side}
    job.builder.add_turn(
        place,
        utt_id,
        recording_id,
        start,
        end,
        channel=channel,
        speaker=job.speaker(call or recording_id, speaker),
        text=text,
        gender=_GENDERS.get(kaldi.spk2gender.get(speaker, "").lower()),
        **custom,
    )
