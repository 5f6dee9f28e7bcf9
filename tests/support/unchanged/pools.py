"""Pools of three processes that answer: python pools.py WAY [START]; prints what each of them answered, as JSON."""

import json
import multiprocessing
import sys

import model

COUNT = 3
inherited = []
"""The model, where the parent loads it before it forks."""


def work(given):
    if given is not None:
        inherited[:] = [given]
    preloaded = sys.modules.get("preloaded")  # in processes that fork from a server that has imported it
    loaded = inherited[0] if inherited else preloaded.loaded if preloaded else model.load()
    model.together(COUNT)
    return model.answer(loaded)


class Answers:
    """A dataset of torch whose rows are answers."""

    def __init__(self, given=None):
        self.given = given

    def __len__(self):
        return COUNT

    def __getitem__(self, _):
        return work(self.given)


def by_joblib(_, given=None):
    from joblib import Parallel, delayed

    return Parallel(n_jobs=COUNT)(delayed(work)(given) for _ in range(COUNT))


def by_pool(start):
    context = multiprocessing.get_context(start)
    with context.Pool(COUNT) as pool:
        answers = pool.map(work, [None] * COUNT, chunksize=1)
        pool.close()
        pool.join()
    return answers


def by_preloaded_forkserver(_):
    multiprocessing.set_forkserver_preload(["preloaded"])
    return by_pool("forkserver")


def by_inheriting(start):
    inherited.append(model.load())
    return by_pool(start)


def by_loader(start, given=None):
    from torch.utils.data import DataLoader

    return list(DataLoader(Answers(given), batch_size=None, num_workers=COUNT, multiprocessing_context=start))


def by_giving(start):
    given = model.load()
    model.answer(given)
    return by_joblib(start, given) if start == "joblib" else by_loader(start, given)


WAYS = {
    "joblib": by_joblib,
    "pool": by_pool,
    "preloaded": by_preloaded_forkserver,
    "inherited": by_inheriting,
    "loader": by_loader,
    "given": by_giving,
}

if __name__ == "__main__":
    print(json.dumps(WAYS[sys.argv[1]](sys.argv[2] if len(sys.argv) > 2 else None)))
