"""``icefall-ctx``: the commands around Lhotse manifests that lhotse itself does not have.

Each command lives in a module of its own and is imported only when it is called, so that
``icefall-ctx --help`` is quick and needs neither torch nor k2.
"""

from __future__ import annotations

import importlib
import logging
import sys
from typing import List, Optional

import click

from icefall_ctx.command_line import end, one_line_errors

# command -> (module:attribute, one-line help)
COMMANDS = {
    "link": ("icefall_ctx.cli.links:link", "Link every turn to its conversation neighbours."),
    "validate": ("icefall_ctx.cli.links:validate", "Check the links, times and speakers."),
    "describe": ("icefall_ctx.cli.links:describe", "Conversations, turns, speakers in figures."),
    "split": ("icefall_ctx.cli.links:split", "Split without cutting a conversation."),
    "score": ("icefall_ctx.cli.score:score", "Error rates of hypotheses against references."),
    "import": ("icefall_ctx.cli.importing:import_", "Your own calls: manifests and a recipe."),
    "audit": ("icefall_ctx.cli.audit:audit", "What the history does for one model."),
    "compare": ("icefall_ctx.cli.compare:compare", "Systems of several seeds, from result files."),
    "hypotheses": ("icefall_ctx.cli.hypotheses:hypotheses", "Write hypotheses into a manifest."),
    "memory": ("icefall_ctx.cli.memory:memory", "Check word lists, make lists for scoring."),
    "ivector": ("icefall_ctx.cli.ivector:ivector", "Train, extract and inspect i-vectors."),
}


class LazyGroup(click.Group):
    """A click group that imports a command only when it is needed."""

    def list_commands(self, ctx: click.Context) -> List[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> Optional[click.Command]:
        if name not in COMMANDS:
            return None
        module, attribute = COMMANDS[name][0].split(":")
        return getattr(importlib.import_module(module), attribute)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Conversation links, scoring, word memory and speaker vectors for Lhotse manifests."""


def main(argv: Optional[List[str]] = None) -> None:
    """Console entry point; what a user can put right ends with one line and status 2."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    with one_line_errors("icefall-ctx"):
        try:
            status = cli.main(args=argv, prog_name="icefall-ctx", standalone_mode=False) or 0
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message(), err=True)
            status = error.exit_code
        except click.UsageError as error:  # click itself prints four lines
            context = error.ctx.command_path if error.ctx else "icefall-ctx"
            end(context, f"{error.format_message()} (--help lists the options)", error.exit_code)
        except click.Abort as error:  # click's word for both Ctrl-C and a file that ends early
            raise error.__cause__ or error from None
    sys.exit(status)
