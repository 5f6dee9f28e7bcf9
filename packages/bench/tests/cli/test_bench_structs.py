"""`onecopy bench structs` as a command."""

from tests.support.screens import widest_of_tables

from onecopy_bench.engine.record import read

SMALL = ("--size", "1MB", "--questions", "1500", "--nested", "100", "--fresh", "1", "--iterations", "1", "-n", "2")


def test_structs_prints_tables_and_writes_a_record(onecopy_process, bench_structs, tmp_path):
    out, page = tmp_path / "r.jsonl", tmp_path / "r.md"
    done = onecopy_process(
        "bench", "structs", *SMALL, "--idle-wait", "0", "--program", bench_structs, "--json", out, "--markdown", page,
        cwd=tmp_path,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    for words in ("cold, 1 thread", "warm, 4 threads", "PSS of 2", "Nested values"):
        assert words in done.stdout
    assert widest_of_tables(done.stdout) <= 80
    (record,) = read(out)
    assert {sample.state for sample in record.samples} == {"ok"}
    assert str(tmp_path) not in out.read_text()
    assert "| map |" in page.read_text()
    assert {path.name for path in tmp_path.iterdir()} == {"r.jsonl", "r.md"}  # the index went with its folder
