"""One line per error, the right status, and nothing that needs the compiled core."""

import warnings
from unittest.mock import Mock

import click
import pytest
from tests.support.programs import NEEDS_BENCH, NEEDS_IMAGES

import onecopy
from onecopy.cli import command_line


def fail_with(monkeypatch, error):
    monkeypatch.setattr(command_line.onecopy, "main", Mock(side_effect=error))


ERRORS = {
    "a/b: No such file or directory": FileNotFoundError(2, "No such file or directory", "a/b"),
    r"a\udcff: Permission denied": PermissionError(13, "Permission denied", b"a\xff"),
    "bytes [64, 8256) but the file has 4096": ValueError("bytes [64, 8256) but the file has 4096"),
    r"a b\x1b[2J": RuntimeError("a\nb\x1b[2J"),
    "KeyError: 'x'": KeyError("x"),
    "plain": OSError("plain"),
    "ValueError: ": ValueError(),
}
ENDS = [(error, 1, f"onecopy: {line}\n") for line, error in ERRORS.items()]
ENDS += [(SystemExit(3), 3, ""), (SystemExit(None), 0, ""), (SystemExit("no way"), 1, "onecopy: no way\n")]
ENDS += [(error(), 130, "onecopy: interrupted\n") for error in (KeyboardInterrupt, click.Abort)]


@pytest.mark.parametrize(("error", "status", "said"), ENDS)
def test_an_error_is_one_line_and_status_1_an_interrupt_130_and_code_that_leaves_has_its_own(
    monkeypatch, capsys, error, status, said
):
    fail_with(monkeypatch, error)
    assert command_line.run(["ls"]) == status
    assert capsys.readouterr() == ("", said)


def test_a_traceback_comes_only_on_request(monkeypatch):
    fail_with(monkeypatch, ValueError("x"))
    monkeypatch.setenv("ONECOPY_TRACEBACK", "1")
    with pytest.raises(ValueError, match="x"):
        command_line.run(["ls"])


USAGE = {
    "nothing": "No such command 'nothing'. (see 'onecopy --help')",
    "--nonsense": "No such option",
    "ls": "Missing argument 'FILE'. (see 'onecopy ls --help')",
    "ls f --sort colour": "'colour' is not one of",
    "warm f --max-bytes much": "'much' is not a size such as 500MB or 2GiB (see 'onecopy warm --help')",
    "warm f --threads 0": "0 is not in the range x>=1.",
    "evict": "Missing argument 'FILE...'",
    "verify": "Missing argument 'FILE...'",
    "hold f --interval 0": "'0' is not between 1ms and a year",
    "hold f --pin much": "--pin",
    "hold f llm=a llm=b": "NAME",
    "explain --children a.npy": "'a.npy' is not a valid PID",
    "bench open f -n 0": "(see 'onecopy bench open --help')",
    "bench open f --json /no/such/folder/x": "the parent of '/no/such/folder/x' does not exist",
}


@pytest.mark.parametrize(
    "line", [pytest.param(line, marks=NEEDS_BENCH if line.startswith("bench") else ()) for line in USAGE]
)
def test_a_wrong_command_line_is_one_line_and_status_2(capsys, line):
    assert command_line.run(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("onecopy: ")
    assert err.count("\n") == 1
    assert USAGE[line] in err


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_lists_every_verb_which_has_a_help_text_too(capsys, option):
    assert command_line.run([option]) == 0
    text = capsys.readouterr().out
    for verb in command_line.VERBS:
        assert f"  {verb} " in text
        assert command_line.run([verb, option]) == 0
        assert f"Usage: onecopy {verb}" in capsys.readouterr().out


@pytest.mark.parametrize(("verb", "distribution"), [(verb, of) for verb, (of, _) in command_line.PACKAGED.items()])
def test_a_verb_that_is_not_installed_names_what_to_install(monkeypatch, capsys, verb, distribution):
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: [])
    assert command_line.run([verb, "open", "x"]) == 2
    wanted = f"{verb} needs another package: pip install {distribution} (see 'onecopy --help')"
    assert capsys.readouterr() == ("", f"onecopy: {wanted}\n")
    command_line.run(["--help"])
    assert f"  {verb} " not in capsys.readouterr().out


@pytest.mark.processes
def test_the_package_of_the_command_line_needs_neither_click_nor_rich_to_be_imported(python):
    code = "import sys, onecopy.cli; print({'click', 'rich', 'numpy'} & set(sys.modules))"
    assert python(code) == "set()\n"


@pytest.mark.processes
def test_python_m_onecopy_is_the_command_line(onecopy_process):
    done = onecopy_process("nothing")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("onecopy: No such command")
    assert onecopy_process("--version").stdout == f"onecopy {onecopy.__version__}\n"


def test_a_warning_of_the_library_is_one_line(monkeypatch, capsys):
    def warn(*_, **__):
        warnings.warn("the header's checksum\ndoes not match", stacklevel=1)

    monkeypatch.setattr(command_line.onecopy, "main", warn)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert command_line.run(["ls"]) == 0
    assert capsys.readouterr().err == "onecopy: warning: the header's checksum does not match\n"


@pytest.mark.parametrize(
    "arguments",
    [[], ["store"], pytest.param(["images"], marks=NEEDS_IMAGES), pytest.param(["bench"], marks=NEEDS_BENCH)],
)
def test_a_group_alone_shows_its_help(onecopy_command, arguments):
    done = onecopy_command(*arguments)
    assert done.stderr == onecopy_command(*arguments, "--help").stdout
    assert "\n  -h, --help" in done.stderr
    assert "..." not in done.stderr.partition("Commands:")[2]
