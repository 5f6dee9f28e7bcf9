"""One meaning has one name in the options of all verbs, of this distribution and of the others."""

import re

import click
import pytest
from click.testing import CliRunner

from onecopy.cli.command_line import onecopy
from onecopy.cli.options import interval

MEANINGS = {
    "--names": lambda option: option.metavar == "GLOB" or "names match" in option.help,
    "--regex": lambda option: option.metavar == "REGEX",
    "--interval": lambda option: re.search(r"\b(between two|(samples|snapshots) (per|a) second)\b", option.help),
    "--folder": lambda option: re.search(r"folder of the store", option.help, re.IGNORECASE),
    "--json": lambda option: "JSON on stdout" in option.help,
    "--threads": lambda option: re.search(r"^(number of|\w+ing) threads\b", option.help, re.IGNORECASE),
    "--force": lambda option: re.search(r"^replace \w+ if it exists", option.help, re.IGNORECASE),
    "--max-bytes": lambda option: re.search(r"^maximum (bytes of all|size of)", option.help, re.IGNORECASE),
    "--quiet": lambda option: re.search(r"^print no\b", option.help, re.IGNORECASE),
}
"""By the name of an option: whether another option has its meaning."""


def options_of(command: click.Command, path: str) -> list[tuple[str, click.Option]]:
    """List the options of a command and of the commands below it, each with the path of its command."""
    found = [(path, option) for option in command.params if isinstance(option, click.Option) and option.help]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            found += options_of(below, f"{path} {name}") if below is not None else []
    return found


OPTIONS = options_of(onecopy, "onecopy")


@pytest.mark.parametrize("name", MEANINGS)
def test_a_meaning_has_one_name_in_all_verbs(name):
    meant = [(path, option) for path, option in OPTIONS if MEANINGS[name](option)]
    assert meant
    assert [(path, option.opts) for path, option in meant if name not in option.opts] == []


def test_a_name_has_one_type_in_all_verbs():
    for name in ("--names", "--regex", "--json", "--quiet", "--force"):
        found = {path: option for path, option in OPTIONS if name in option.opts and "bench" not in path}
        assert len({(option.type.name, option.is_flag, option.metavar) for option in found.values()}) == 1, found


@pytest.mark.parametrize(
    ("text", "seconds"), [("2", 2.0), ("1.5 s", 1.5), ("250ms", 0.25), ("2min", 120.0), ("9ms", None), ("2y", None)]
)
def test_an_interval_is_a_duration_of_at_least_what_the_verb_can_do(text, seconds):
    @click.command()
    @interval("1s", "Time between two samples.", least="10ms")
    def verb(interval: float) -> None:
        click.echo(interval)

    done = CliRunner().invoke(verb, ["--interval", text])
    assert (done.exit_code, done.stdout) == ((2, "") if seconds is None else (0, f"{seconds}\n"))
