"""One line per error, the right status, and nothing that needs the compiled core."""

import sys

import click
import pytest
from tests.support.programs import NEEDS_BENCH, NEEDS_IMAGES

from onecopy.cli import command_line


def failing(monkeypatch, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(command_line.onecopy, "main", fail)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (FileNotFoundError(2, "No such file or directory", "a/b"), "a/b: No such file or directory"),
        (PermissionError(13, "Permission denied", b"a\xff"), r"a\udcff: Permission denied"),
        (ValueError("bytes [64, 8256) but the file has 4096"), "bytes [64, 8256) but the file has 4096"),
        (RuntimeError("a\nb\x1b[2J"), r"a b\x1b[2J"),
        (KeyError("x"), "KeyError: 'x'"),
        (OSError("plain"), "plain"),
        (ValueError(), "ValueError: "),
    ],
)
def test_an_error_is_one_line_on_stderr_and_status_1(monkeypatch, capsys, error, line):
    failing(monkeypatch, error)
    assert command_line.run(["ls"]) == 1
    assert capsys.readouterr() == ("", f"onecopy: {line}\n")


def test_a_traceback_comes_only_on_request(monkeypatch):
    failing(monkeypatch, ValueError("x"))
    monkeypatch.setenv("ONECOPY_TRACEBACK", "1")
    with pytest.raises(ValueError, match="x"):
        command_line.run(["ls"])


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_an_interrupt_is_status_130(monkeypatch, capsys, error):
    failing(monkeypatch, error)
    assert command_line.run(["ls"]) == 130
    assert capsys.readouterr().err == "onecopy: interrupted\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing"], "No such command 'nothing'. (see 'onecopy --help')"),
        (["ls"], "Missing argument 'FILE'. (see 'onecopy ls --help')"),
        (
            ["warm", "f", "--max-bytes", "much"],
            "'much' is not a size such as 500MB or 2GiB (see 'onecopy warm --help')",
        ),
        (["warm", "f", "--threads", "0"], "0 is not in the range x>=1."),
        pytest.param(["bench", "open", "f", "-n", "0"], "(see 'onecopy bench open --help')", marks=NEEDS_BENCH),
        pytest.param(
            ["bench", "open", "f", "--json", "/no/such/folder/x"],
            "the folder of '/no/such/folder/x' does not exist",
            marks=NEEDS_BENCH,
        ),
        (["ls", "f", "--sort", "colour"], "'colour' is not one of"),
        (["evict"], "Missing argument 'FILE...'"),
        (["--nonsense"], "No such option"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_status_2(capsys, arguments, words):
    assert command_line.run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("onecopy: ")
    assert err.count("\n") == 1
    assert words in err


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["-h"], ["ls", "-h"], ["warm", "-h"], pytest.param(["bench", "open", "-h"], marks=NEEDS_BENCH)],
)
def test_help_is_status_0(capsys, arguments):
    assert command_line.run(arguments) == 0
    assert "Usage: onecopy" in capsys.readouterr().out


def test_help_lists_every_verb(capsys):
    command_line.run(["--help"])
    text = capsys.readouterr().out
    assert all(f"  {verb} " in text for verb in command_line.VERBS)


@pytest.mark.parametrize(("verb", "distribution"), [(verb, of) for verb, (of, _) in command_line.PACKAGED.items()])
def test_a_verb_that_is_not_installed_names_what_to_install(monkeypatch, capsys, verb, distribution):
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: [])
    assert command_line.run([verb, "open", "x"]) == 2
    wanted = f"{verb} needs another distribution: pip install {distribution} (see 'onecopy --help')"
    assert capsys.readouterr() == ("", f"onecopy: {wanted}\n")
    command_line.run(["--help"])
    assert f"  {verb} " not in capsys.readouterr().out


@pytest.mark.processes
def test_the_package_of_the_command_line_needs_neither_click_nor_rich_to_be_imported():
    import subprocess

    code = "import sys, onecopy.cli; print(sorted({'click', 'rich', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "click" not in done.stdout
    assert "rich" not in done.stdout


@pytest.mark.processes
def test_python_m_onecopy_is_the_command_line(onecopy_process):
    done = onecopy_process("nothing")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("onecopy: No such command")


@pytest.mark.parametrize(("code", "status", "said"), [(3, 3, ""), (None, 0, ""), ("no way", 1, "onecopy: no way\n")])
def test_code_that_leaves_has_its_own_status(monkeypatch, capsys, code, status, said):
    failing(monkeypatch, SystemExit(code))
    assert command_line.run(["ls"]) == status
    assert capsys.readouterr().err == said


def test_a_warning_of_the_library_is_one_line(monkeypatch, capsys):
    import warnings

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
