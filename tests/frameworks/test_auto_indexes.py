"""Vector indexes under `onecopy run`: they answer, change and fail as without it, and are views of a snapshot.

All cases of a library are run by one process, each case in a fork and a folder of its own.
"""

import textwrap

import pytest
from tests.support.same_answers import PRELUDE, Outcome, outcomes, same_answer, same_answers

pytestmark = pytest.mark.timeout(600)  # the first test of a library runs all its cases
COMMON = f"""{PRELUDE}
import re
x = np.random.default_rng(0).random((20_000, 64), np.float32)
q = x[:20] + np.float32(0.01)
def attempt(function, *arguments):
    try:
        return function(*arguments)
    except Exception as error:
        # Where a file is too short, faiss appends the errno of whatever system call failed last in the thread.
        return re.sub(r"(read error in .*) \\([^()]*\\)", r"\\1", f"{{type(error).__name__}} {{error}}")
"""
FAISS = f"""{COMMON}
import pickle, threading
import faiss
def digest(arrays):
    return hashlib.sha256(b"".join(np.ascontiguousarray(each).tobytes() for each in arrays)).hexdigest()
def written(factory):
    faiss.omp_set_num_threads(1)  # the same links in each run
    index = faiss.index_factory(64, factory)
    index.train(x)
    index.add_with_ids(x, np.arange(len(x))) if "IDMap" in factory else index.add(x)
    faiss.write_index(index, "i.faiss")
"""
FACTORIES = ["Flat", "HNSW16", "IVF64,Flat", "SQ8", "PCA32,IVF64,Flat", "IVF64,Flat,RFlat", "IDMap2,Flat"]
READ = """
    written({!r})
    i = faiss.read_index("i.faiss")
    print(type(i), i.ntotal, i.d, i.is_trained, i.metric_type, isinstance(i, faiss.Index), repr(i)[:40])
    print(digest(i.search(q, 5)), digest(i.range_search(q, 2)), digest([i.assign(q, 3)]))
    print(attempt(lambda: digest([i.reconstruct(3), i.reconstruct_n(5, 9)])), attempt(i.search, q[:, :9], 5))
    print(attempt(lambda: i.nonsense), attempt(i.search, "text", 5))
    faiss.write_index(i, "j.faiss")
    print(open("i.faiss", "rb").read() == open("j.faiss", "rb").read())
    """
CHANGED = """
    written({!r})
    i = faiss.read_index("i.faiss")
    print(digest(i.search(q, 5)))
    print(attempt(lambda: i.add_with_ids(q, np.arange(20) + 10**6) if "IDMap" in {!r} else i.add(q)), i.ntotal)
    print(digest(i.search(q, 5)), attempt(i.remove_ids, np.arange(5)), i.ntotal)
    j = faiss.clone_index(i)
    i.reset()
    print(i.ntotal, j.ntotal, faiss.read_index("i.faiss").ntotal)
    """
OPENED = 'written("Flat")\ni = faiss.read_index("i.faiss")\n'
USES = {
    "pickled": "print(digest(pickle.loads(pickle.dumps(i)).search(q, 5)), i.__getstate__().keys())",
    "its vectors are written": """
        v = faiss.rev_swig_ptr(i.get_xb(), i.ntotal * i.d)
        v[:64] = 0
        print(digest(i.search(np.zeros((1, 64), np.float32), 3)))""",
    "in another index": """
        shards = faiss.IndexShards(64); shards.add_shard(i)
        print(digest(shards.search(q, 5)))
        i.add(q)
        print(shards.at(0).ntotal, digest(shards.search(q, 5)))""",
    "merged": """
        j = faiss.read_index("i.faiss")
        i.merge_from(j)
        print(i.ntotal, j.ntotal)""",
    "the file is rewritten": """
        i.search(q, 5)
        os.truncate("i.faiss", 100)
        print(digest(i.search(q, 5)), i.ntotal)
        i.add(q)
        print(digest(i.search(q, 5)), i.ntotal, attempt(faiss.read_index, "i.faiss"))""",
    "threads": """
        found = []
        many = [threading.Thread(target=lambda: found.append(digest(i.search(x[:200], 5)))) for _ in range(4)]
        [each.start() for each in many]
        i.codes.size()  # reads the index, which the others search
        [each.join() for each in many]
        print(len(found), set(found))""",
}
SETTINGS = """
    written("PCA32,IVF64,Flat")
    i = faiss.read_index("i.faiss")
    faiss.extract_index_ivf(i).nprobe = 9
    ivf = faiss.extract_index_ivf(i)
    print(type(ivf), ivf.nprobe, ivf.nlist, digest(i.search(q, 5)))
    faiss.ParameterSpace().set_index_parameter(i, "nprobe", 5)
    print(ivf.nprobe, digest(i.search(q, 5)))
    i.add(q)
    print(ivf.nprobe, ivf.ntotal, digest(i.search(q, 5)))
    ivf.nprobe = 2
    print(faiss.extract_index_ivf(i).nprobe, digest(i.search(q, 5)))
    written("HNSW16")
    i = faiss.read_index("i.faiss")
    links = i.hnsw
    links.efSearch = 99
    print(type(links), links.efSearch, i.hnsw.efSearch, links.max_level, digest(i.search(q, 5)))
    i.add(q)
    print(links.efSearch, i.hnsw.efSearch, digest(i.search(q, 5)))
    links.efSearch = 3
    print(i.hnsw.efSearch, digest(i.search(q, 5)), attempt(lambda: links.nonsense))
    """
ERRORS = """
    written("HNSW16")
    for size in (3_000_000, 2_000_000, 100, 3, 0):
        os.truncate("i.faiss", size)
        print(attempt(faiss.read_index, "i.faiss"))
    print(attempt(faiss.read_index, "none"), attempt(faiss.read_index), attempt(faiss.read_index, 3))
    b = faiss.IndexBinaryFlat(512)
    b.add(np.random.default_rng(1).integers(0, 255, (40_000, 64), np.uint8))
    faiss.write_index_binary(b, "b")
    i = faiss.read_index_binary("b")
    print(type(i), i.ntotal, i.code_size, digest(i.search(np.zeros((2, 64), np.uint8), 5)))
    i.add(np.zeros((2, 64), np.uint8))
    print(i.ntotal, digest(i.search(np.zeros((2, 64), np.uint8), 5)))
    """
OF_FAISS = {
    **{f"read {factory}": READ.format(factory) for factory in FACTORIES},
    **{f"changed {factory}": CHANGED.format(factory, factory) for factory in FACTORIES},
    **{name: OPENED + textwrap.dedent(code) for name, code in USES.items()},
    "settings": SETTINGS,
    "errors": ERRORS,
}


USEARCH = f"""{COMMON}
import copy, pickle
from usearch.index import Index, Indexes
x = x[:8000]
def digest(found):
    return hashlib.sha256(np.asarray(found.keys).tobytes() + np.asarray(found.distances).tobytes()).hexdigest()
i = Index(ndim=64, metric="l2sq", dtype="f32")
i.add(np.arange(len(x)), x, threads=1)
saved = bytes(i.save())
def opened():
    with open("i.usearch", "wb") as file:
        file.write(saved)
    return Index.restore("i.usearch")
"""
OF_USEARCH = {
    "read": """
        i = opened()
        print(i, len(i), i.specs, i.nlevels, i.keys[3], len(i.keys), i.jit, digest(i.search(q, 5)))
        print(5 in i, i.contains(9000), i.count(np.array([3, 9000])), described(i.get(3)), described(i[np.arange(3)]))
        i.expansion_search = 200
        print(i.expansion_search, digest(i.search(q, 5)), digest(i.search(q, 5, exact=True)))
        print(digest(Index(ndim=64, metric="l2sq", dtype="f32", path="i.usearch").search(q, 5)))""",
    "changed": """
        i = opened()
        i.expansion_search = 200
        print(digest(i.search(q, 5)))
        i.add(np.arange(9000, 9020), q, threads=1)
        print(len(i), i.expansion_search, digest(i.search(q, 5)), i.capacity, i.memory_usage)
        i.remove(3)
        print(len(i), 3 in i, len(Index.restore("i.usearch")))""",
    "renamed": "i = opened(); i.rename(3, 77_777); print(3 in i, 77_777 in i)",
    "cleared": "i = opened(); i.clear(); print(len(i)); i.add(1, q[0]); print(len(i), i.capacity)",
    "reset": "i = opened(); i.reset(); print(len(i)); i.add(1, q[0]); print(len(i), digest(i.search(q, 1)))",
    "copied": """
        i = opened()
        j, k = i.copy(), copy.copy(i)
        print(len(j), len(k), attempt(pickle.dumps, i), hashlib.sha256(i.vectors.tobytes()).hexdigest())
        k.add(9000, q[0]); print(len(i), len(j), len(k))
        j.save("j.usearch"); print(len(Index.restore("j.usearch")), len(Indexes([i, j])))""",
    "loaded again": """
        i = opened(); i.load("i.usearch"); i.view("i.usearch"); print(len(i), attempt(i.add, 9000, q[0]))
        i = Index(ndim=64, metric="l2sq", dtype="f32"); i.add(9000, q[0]); i.load("i.usearch")
        print(len(i), 9000 in i)""",
    "the file is rewritten": """
        i = opened()
        os.truncate("i.usearch", 1_500_000)
        print(digest(i.search(q, 5)), attempt(Index.restore, "i.usearch"))
        i.add(9000, q[0])
        print(len(i), digest(i.search(q, 5)))""",
    "errors": """
        i = opened()
        for wrong in "none", 3, None:
            print(attempt(i.load, wrong))
        print(attempt(lambda: i.nonsense), attempt(i.search, q[:, :5], 3))
        open("damaged", "wb").write(bytes(3 << 20)); print(attempt(Index.restore, "damaged"))""",
}
HNSWLIB = """
    import hnswlib
    i = hnswlib.Index("l2", 64)
    i.init_index(20_000, M=16, random_seed=1)
    i.add_items(x, num_threads=1)
    i.save_index("i.hnsw")
    i = hnswlib.Index("l2", 64)
    i.load_index("i.hnsw", max_elements=30_000)
    print(i.element_count, i.max_elements, i.knn_query(q, 3))
    for wrong in "none", 3:
        print(attempt(hnswlib.Index("l2", 64).load_index, wrong)[:70])
    """
ONE_COPY = """
import multiprocessing as mp
from onecopy.memory import proc
def search(_):
    before = proc.rollup(os.getpid()).anonymous
    i = {}
    barrier.wait()
    found = i.search(q, 5)
    used = proc.rollup(os.getpid()).anonymous - before
    barrier.wait()
    return used, [each.tolist() for each in (found if isinstance(found, tuple) else (found.keys,))]
barrier = mp.get_context("fork").Barrier(4)
with mp.get_context("fork").Pool(4) as pool:
    found = pool.map(search, range(4), 1)
assert all(each[1] == found[0][1] for each in found)
print([{} or used for used, _ in found])
"""


@pytest.fixture(scope="module")
def of_faiss(tmp_path_factory):
    """Give a function of what a case did under `onecopy run`, which is what it does as a plain program."""
    pytest.importorskip("faiss", reason="faiss is not installed")
    return same_answers(OF_FAISS, tmp_path_factory.mktemp("faiss"), prelude=FAISS)


@pytest.fixture(scope="module")
def of_usearch(tmp_path_factory):
    pytest.importorskip("usearch", reason="usearch is not installed")
    return same_answers(OF_USEARCH, tmp_path_factory.mktemp("usearch"), prelude=USEARCH)


def copied(outcome: Outcome) -> set[str]:
    return {reason for reason in outcome.reasons if reason.startswith("used by")}


@pytest.mark.parametrize("name", OF_FAISS)
def test_an_index_of_faiss_answers_from_a_snapshot_and_is_read_when_it_is_changed(of_faiss, name):
    outcome = of_faiss(name)
    assert outcome.shared["b" if name == "errors" else "i.faiss"] > 1 << 20
    if name.startswith(("read", "changed")):
        assert len(copied(outcome)) == name.startswith("changed")
        assert all(".add" in reason for reason in copied(outcome))
    if name == "settings":
        assert copied(outcome) == {"used by IndexPreTransform.add", "used by IndexHNSW.add"}


@pytest.mark.parametrize("name", OF_USEARCH)
def test_an_index_of_usearch_answers_from_a_snapshot_and_is_read_when_it_is_changed(of_usearch, name):
    outcome = of_usearch(name)
    assert outcome.shared["i.usearch"] > 1 << 20
    assert bool(copied(outcome)) == (name not in ("read", "reset", "errors"))


@pytest.mark.nightly
def test_the_report_has_what_to_do_with_an_index_of_hnswlib(tmp_path):
    pytest.importorskip("hnswlib", reason="hnswlib is not installed")
    outcome = same_answer(HNSWLIB, tmp_path, prelude=COMMON)
    assert outcome.shared == {}
    assert {reason.partition(":")[0] for reason in outcome.reasons} == {"hnswlib cannot map an index"}


@pytest.mark.parametrize(
    ("module", "prelude", "written", "opened"),
    [
        ("faiss", FAISS, 'written("Flat")', 'faiss.read_index("i.faiss")'),
        ("usearch", USEARCH, "opened()", 'Index.restore("i.usearch")'),
    ],
)
def test_processes_that_search_an_index_hold_it_once(tmp_path, module, prelude, written, opened):
    pytest.importorskip(module, reason=f"{module} is not installed")
    small = "used < 2 << 20"  # the index: 5 MB and 3 MB
    code = f"{written}\n{ONE_COPY.format(opened, small)}"
    outcome = outcomes({"": code}, tmp_path / "run", prelude=prelude)[""]
    assert outcome.status == 0, outcome.errors
    assert outcome.printed == "[True, True, True, True]\n", outcome.printed
    (group,) = outcome.report["shared"]
    assert len(group["pids"]) >= 4
