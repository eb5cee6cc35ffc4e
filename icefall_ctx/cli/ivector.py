"""``icefall-ctx ivector``: train an extractor, attach i-vectors to manifests, look at them."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import click

from icefall_ctx.cli.shared_options import seed_option
from icefall_ctx.errors import InputError, ProblemLog
from icefall_ctx.files import check_output

_FILE = click.Path(dir_okay=False, path_type=Path)
_POSITIVE, _COUNT = click.IntRange(min=1), click.IntRange(min=0)
_AMOUNT = click.FloatRange(min=0)
_CUTS = click.argument("cuts", type=_FILE)
_JOBS = click.option("--num-jobs", type=_POSITIVE, default=1, show_default=True, help="Processes.")
_DEVICE = click.option("--device", default="cpu", show_default=True, help="cpu, cuda or cuda:N.")


@click.group()
def ivector() -> None:
    """Speaker vectors (i-vectors) for Lhotse manifests of cuts."""


@ivector.command(context_settings={"show_default": True})
@_CUTS
@click.argument("extractor", type=_FILE)
@click.option("--source", type=click.Choice(["features", "audio"]), default="features",
              help="Stored log-mel energies of the manifest, or its audio.")
@click.option("--kind", type=click.Choice(["mfcc", "fbank"]), default="mfcc",
              help="What the models see of the log-mel energies.")
@click.option("--num-mel-bins", type=click.IntRange(min=4), default=80,
              help="Columns of the stored features that are log-mel "
              "energies, always the first; with audio, how many to compute.")
@click.option("--sampling-rate", type=click.IntRange(min=1000), default=8000,
              help="Hz; with --source audio.")
@click.option("--sample-scale", type=click.FloatRange(min=0, min_open=True), default=1.0,
              help="Full scale of the samples behind stored "
              "features: 1, or 32768 for Kaldi's.")
@click.option("--num-ceps", type=_POSITIVE, default=20, help="Cepstra a frame; with --kind mfcc.")
@click.option("--delta-order", type=_COUNT, default=2,
              help="0: no deltas; 2: slopes and their slopes.")
@click.option("--splice", type=_COUNT, default=0,
              help="Frames of context on each side; needs --delta-order 0.")
@click.option("--cmvn", type=click.Choice(["sliding", "utterance", "none"]), default="sliding",
              help="Mean subtraction: over 3 s around each frame, the utterance, or none.")
@click.option("--cmvn-variance/--no-cmvn-variance", default=False, help="Normalise variances too.")
@click.option("--vad/--no-vad", default=True, help="Use only frames loud enough to be speech.")
@click.option("--vad-range-db", type=_AMOUNT, default=30.0,
              help="Speech is at most this much below the loudest "
              "frame of the utterance.")
@click.option("--vad-floor-db", default=-75.0, help="Anything below is silence; 0 is full scale.")
@click.option("--num-gaussians", type=_POSITIVE, default=2048, help="Size of the UBM.")
@click.option("--full-covariance/--diagonal-covariance", default=False, help="Of the UBM.")
@click.option("--ubm-start", type=click.Choice(["kmeans", "split"]), default="kmeans",
              help="How the UBM begins: k-means, or splitting 1, 2, 4, ... Gaussians.")
@click.option("--ubm-iters", type=_COUNT, default=4, help="EM iterations over all frames.")
@click.option("--ubm-sample-frames", type=_POSITIVE, default=500_000,
              help="Frames kept in memory for the first "
              "iterations.")
@click.option("--variance-floor", type=_AMOUNT, default=0.01,
              help="Share of the variance of all frames.")
@click.option("--top-n", type=_POSITIVE, default=20, help="Gaussians a frame is assigned to.")
@click.option("--min-posterior", type=click.FloatRange(0, 1), default=0.025,
              help="Posteriors below are dropped.")
@click.option("--acoustic-weight", type=_AMOUNT, default=1.0,
              help="Weight of a frame's posteriors.")
@click.option("--max-count", type=_AMOUNT, default=0.0,
              help="Evidence of at most this many frames counts in a "
              "vector; 0: no limit.")
@click.option("--dim", type=_POSITIVE, default=200, help="Dimension of the i-vectors before LDA.")
@click.option("--iters", type=_COUNT, default=5,
              help="EM iterations of the total variability matrix.")
@click.option("--lda-dim", type=_COUNT, default=100,
              help="Dimension after LDA, at most the number of speakers "
              "less one; 0: no LDA.")
@click.option("--length-norm/--no-length-norm", default=True, help="Scale vectors to length "
              "sqrt(dim).")
@click.option("--cache-mb", type=_COUNT, default=1024,
              help="Memory for statistics that need not be computed "
              "again in every iteration, all processes together.")
@seed_option("Of the start of both models.")
@_JOBS
@_DEVICE
def train(cuts: Path, extractor: Path, **flags) -> None:
    """Train an extractor on the manifest CUTS and write it to the file EXTRACTOR.

    The defaults are Kaldi's sre08 sizes, made for hundreds of hours; a corpus of a few hours
    wants fewer Gaussians (64 to 512) and dimensions (32 to 100).
    """
    from icefall_ctx.features.ivector.stage import load_cuts
    from icefall_ctx.features.ivector.training import train_extractor

    options = _training_options(flags)
    check_output(extractor)
    trained = train_extractor(load_cuts(cuts), options)
    trained.save(extractor)
    click.echo(f"{extractor}: {_description(trained)}")


def _training_options(flags: dict):
    from icefall_ctx.features.ivector.frontend import FrontendConfig
    from icefall_ctx.features.ivector.stats import SelectionOptions
    from icefall_ctx.features.ivector.total_variability import TotalVariabilityOptions
    from icefall_ctx.features.ivector.training import TrainingOptions
    from icefall_ctx.features.ivector.ubm import UbmOptions

    def pick(kind, **renamed):
        names = [n for n in kind.__dataclass_fields__ if n in flags and n not in renamed]
        return kind(**{name: flags[name] for name in names}, **renamed)

    seed = flags["seed"]
    return pick(
        TrainingOptions,
        frontend=pick(FrontendConfig),
        ubm=pick(
            UbmOptions,
            full=flags["full_covariance"],
            start=flags["ubm_start"],
            num_iters=flags["ubm_iters"],
            sample_frames=flags["ubm_sample_frames"],
            seed=seed,
        ),
        selection=pick(SelectionOptions),
        tv=pick(
            TotalVariabilityOptions, rank=flags["dim"], num_iters=flags["iters"], seed=seed
        ),
    )


def _description(extractor) -> str:
    gmm, frontend = extractor.gmm, extractor.frontend
    if frontend.source == "audio":
        source = f"audio at {frontend.sampling_rate} Hz"
    else:
        source = f"{frontend.feature_type} with {frontend.feature_dim} dimensions"
    return (
        f"{gmm.num_gaussians} {'full' if gmm.full else 'diagonal'} Gaussians of {gmm.dim} "
        f"dimensions ({frontend.kind} of {source}), i-vectors of {extractor.model.rank}, "
        f"finished vectors of {extractor.dim}; fingerprint {extractor.fingerprint()}"
    )


@ivector.command(context_settings={"show_default": True})
@_CUTS
@click.argument("extractor", type=_FILE)
@click.argument("output", type=_FILE)
@click.option("--mode", type=click.Choice(["utterance", "speaker", "online"]), default="utterance",
              help="Speech behind a vector: the utterance; all of the speaker in this manifest; or "
              "this and the speaker's earlier turns in the conversation.")
@click.option("--max-frames", default=1000.0, help="Mode online: earlier turns count as at most "
              "this many frames of speech; 0: no limit.")
@click.option("--storage", type=_FILE, default=None,
              help="File of the vectors, *.lca  [default: beside OUTPUT]")
@_JOBS
@_DEVICE
def extract(
    cuts: Path, extractor: Path, output: Path, storage: Optional[Path], **options
) -> None:
    """Write OUTPUT: the manifest CUTS with an i-vector on every supervision.

    Afterwards `supervision.load_ivector()` returns the vector, a float32 array.  The vectors are
    in one file, at the path by which OUTPUT names it.
    """
    from icefall_ctx.features.ivector.stage import extract_manifest

    storage = storage or _storage_beside(output)
    click.echo(str(extract_manifest(cuts, extractor, output, storage, **options)))


def _storage_beside(output: Path) -> Path:
    return output.with_name(output.name.split(".jsonl")[0] + "_ivectors.lca")


@ivector.command()
@click.argument("path", type=_FILE)
@click.option("--picture", type=_FILE, default=None,
              help="Write a two-dimensional projection, one colour a speaker (.png, .pdf, .svg).")
@click.option("--max-vectors", default=3000, show_default=True,
              help="Of more vectors, a random choice is compared.")
def inspect(path: Path, picture: Optional[Path], max_vectors: int) -> None:
    """Describe PATH, an extractor (*.pt) or a manifest with i-vectors.

    For a manifest: the equal error rate of cosine scoring, same speaker against different
    speakers, over all pairs of different conversations; of all turns, of each side, and with the
    mean of a speaker's turns in a conversation in place of single turns.  Only conversations that
    the extractor was not trained on say how good it is.
    """
    if path.suffix == ".pt":
        from icefall_ctx.features.ivector.extractor import IvectorExtractor

        click.echo(f"{path}: {_description(IvectorExtractor.load(path))}")
    else:
        _inspect_manifest(path, picture, max_vectors)


def _inspect_manifest(path: Path, picture: Optional[Path], max_vectors: int) -> None:
    import torch

    from icefall_ctx.features.ivector.evaluate import draw, one_vector_a_speaker
    from icefall_ctx.features.ivector.kaldi_io import vectors_of
    from icefall_ctx.features.ivector.stage import load_cuts

    cuts, problems = load_cuts(path), ProblemLog()
    vectors = vectors_of(cuts, problems)
    turns = {s.id: s for cut in cuts for s in cut.supervisions if s.speaker}
    known = [turns[id_] for id_ in vectors if id_ in turns]
    if not known:
        raise InputError(f"{path}: no supervision with an i-vector names its speaker")
    matrix, names = torch.stack([vectors[s.id] for s in known]), [s.speaker for s in known]
    click.echo(f"{path}: {len(known)} vectors of {matrix.shape[1]}, {len(set(names))} speakers")
    if one_vector_a_speaker(matrix, names):
        click.echo(
            "every speaker has one vector only (--mode speaker): pairs of one speaker tell nothing"
            "; inspect the vectors of --mode utterance"
        )
    else:
        _print_error_rates(matrix, known, max_vectors)
    if picture is not None:
        draw(matrix, names, picture, path.name)
        click.echo(f"{picture}: written")
    if len(problems):
        click.echo(problems.summary())


def _print_error_rates(matrix, supervisions: list, max_vectors: int) -> None:
    """Of all turns and of each side; single turns, and one vector a speaker and conversation."""
    from icefall_ctx.features.ivector.evaluate import averaged, speaker_error_rate

    speakers = [s.speaker for s in supervisions]
    calls = [(s.custom or {}).get("conv_id", s.recording_id) for s in supervisions]
    sides = [str((s.custom or {}).get("side", "")) for s in supervisions]
    if len(set(calls)) == 1:
        click.echo(str(speaker_error_rate(matrix, speakers, max_vectors=max_vectors)))
        return
    click.echo(f"pairs of different conversations, of {len(set(calls))}:")
    for side in ("", *sorted(set(sides) - {""})):
        rows = [row for row, name in enumerate(sides) if side in ("", name)]
        turns = matrix[rows], [speakers[row] for row in rows], [calls[row] for row in rows]
        means = averaged(*turns)
        measured = {"turns": turns, "means of a conversation": means}
        if len(means[0]) == len(rows):  # a turn each: the same again
            del measured["means of a conversation"]
        for what, chosen in measured.items():
            label = f"{side or 'all'}, {what}:"
            try:
                rate = speaker_error_rate(*chosen, max_vectors=max_vectors)
            except InputError as error:  # too few of this side or with several turns only
                rate = f"no rate, {error}"
            click.echo(f"  {label:<36}{rate}")


@ivector.command("import-kaldi")
@_CUTS
@click.argument("archive", type=_FILE)
@click.argument("output", type=_FILE)
@click.option("--key", type=click.Choice(["utterance", "speaker"]), default="utterance",
              show_default=True, help="What the keys of ARCHIVE are.")
@click.option("--storage", type=_FILE, default=None,
              help="File of the vectors, *.lca  [default: beside OUTPUT]")
@click.option("--allow-missing", is_flag=True,
              help="Leave supervisions without a vector as they are, and count them.")
def import_kaldi(
    cuts: Path, archive: Path, output: Path, key: str, storage: Optional[Path], allow_missing: bool
) -> None:
    """Attach the vectors of a Kaldi ARCHIVE (*.ark or *.scp) to the manifest CUTS."""
    from icefall_ctx.features.ivector import kaldi_io, stage

    manifest = stage.load_cuts(cuts)
    missing = ProblemLog(strict=not allow_missing)
    found = kaldi_io.by_supervision(kaldi_io.read_archive(archive), manifest, key, missing)
    arrays = stage.store_vectors(found, storage or _storage_beside(output))
    stage.save_cuts(stage.attach(manifest, arrays, ProblemLog(max_shown=0)), output)
    left_out = f"; {missing.summary()}" if len(missing) else ""
    click.echo(f"{output}: {len(found)} vectors{left_out}")


@ivector.command("export-kaldi")
@_CUTS
@click.argument("prefix", type=_FILE)
def export_kaldi(cuts: Path, prefix: Path) -> None:
    """Write the i-vectors of the manifest CUTS to PREFIX.ark and PREFIX.scp."""
    from icefall_ctx.features.ivector import kaldi_io, stage

    problems = ProblemLog()
    vectors = kaldi_io.vectors_of(stage.load_cuts(cuts), problems)
    kaldi_io.write_archive(vectors, prefix)
    click.echo(f"{prefix}.ark: {len(vectors)} vectors")
    if len(problems):
        click.echo(problems.summary())
