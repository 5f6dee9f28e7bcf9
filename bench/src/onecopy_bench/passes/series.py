"""What a run with passes leaves behind: places, options, and one flat entry per sample; as dataclasses and as JSON.

Units are in the names as in `onecopy_bench.record`, and like it this holds no folder, no host and no user. `_ns` counts
from the moment before opening, so that the last of `passes_ns` is the time of opening, warming and all passes.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from onecopy_bench.machine import quiet
from onecopy_bench.report import sentences
from onecopy_bench.report.summary import Spread

if TYPE_CHECKING:
    from collections.abc import Iterator

FORMAT = "onecopy-passes 1"

OUT_OF_MEMORY = "killed by the kernel: out of memory"
"""How the reason of a sample begins that went over the limit of its group."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a run with passes goes.

    Attributes
    ----------
    rounds
        Each holds every cell once, in an order of its own.
    passes
        How often the chosen pieces are gone over in one sample, at most.
    shares, orders
        What is touched, see `pieces.choose`.
    limit_s
        Seconds of passes after which a sample stops between two pieces. A cell whose first pass did not
        end is not asked again.
    budget_s
        Seconds for all rounds: one that does not fit any more is not begun; the first is always taken. None: no end.
    timeout, idle_wait, seed
        As in `onecopy_bench.record.Options`.
    """

    rounds: int = 7
    passes: int = 2
    shares: tuple[float, ...] = (1.0,)
    orders: tuple[str, ...] = ("file",)
    limit_s: float = 5.0
    budget_s: float | None = None
    timeout: float = 120.0
    idle_wait: float = 30.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """Where the file lies: a name, what is special there, and what the kernel says of it.

    `device_bytes_per_s` is the limit of a throttled disk, `memory_bytes` that of a group; None without one.
    """

    name: str
    detail: str
    size: int
    read_ahead_bytes: int | None
    device_bytes_per_s: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    """One sample: one process, one mechanism, one choice of pieces, in one round.

    Attributes
    ----------
    state, reason
        "ok", or what went wrong and the facts about it.
    passes_ns
        When each pass ended. Shorter than asked for where `cut_short`.
    anonymous, pss
        Bytes above an empty interpreter, while the file was held after the last pass.
    huge
        Bytes of the file mapped by 2 MiB entries, or of private memory in 2 MiB pages.
    read_bytes, disk_bytes
        Read from a disk because the process asked; read by the whole disk meanwhile, for whomever.
    notes
        What the mechanism said, and `touched`, the bytes of the last pass.
    """

    place: str
    method: str
    order: str
    share: float
    round: int
    state: str
    reason: str = ""
    started: str = ""
    idle_share: float | None = None
    cached_before: int | None = None
    open_ns: int = 0
    warm_ns: int | None = None
    passes_ns: tuple[int, ...] = ()
    cut_short: bool = False
    minor_faults: int = 0
    major_faults: int = 0
    cpu_ms: float = 0.0
    read_bytes: int | None = None
    disk_bytes: int | None = None
    anonymous: int = 0
    pss: int = 0
    huge: int = 0
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entry:
    """A mechanism as the record has to know it: "row", "ceiling" or "control"; whether the page cache matters."""

    name: str
    detail: str
    role: str
    uses_cache: bool


@dataclass(frozen=True, slots=True)
class Series:
    """One run. `missing` has the reason for each place that this machine could not provide."""

    scenario: str
    created: str
    machine: dict[str, Any]
    file: str
    size: int
    options: Options
    places: tuple[Place, ...]
    missing: dict[str, str]
    entries: tuple[Entry, ...]
    samples: tuple[Taken, ...]

    def of(self, method: str, place: str, order: str | None = None, share: float | None = None) -> list[Taken]:
        """Return the samples of one mechanism in one place, of one cell if told, in the order they were taken."""
        return [
            s
            for s in self.samples
            if (s.method, s.place) == (method, place) and order in (None, s.order) and share in (None, s.share)
        ]


def to_json(series: Series, **computed: object) -> str:
    """Return a record as JSON text, with whatever was computed from it under the given names."""
    return json.dumps({"format": FORMAT, **asdict(series), **computed}, indent=1) + "\n"


def from_json(text: str) -> Series:
    """Read a record back; raises ValueError where the text is no record of this format."""
    plain = json.loads(text)
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        raise ValueError(f"not a record of the format {FORMAT!r}")
    try:
        options = plain["options"]
        return Series(
            **{name: plain[name] for name in ("scenario", "created", "machine", "file", "size", "missing")},
            options=Options(**{**options, "shares": tuple(options["shares"]), "orders": tuple(options["orders"])}),
            places=tuple(Place(**place) for place in plain["places"]),
            entries=tuple(Entry(**entry) for entry in plain["entries"]),
            samples=tuple(Taken(**{**s, "passes_ns": tuple(s["passes_ns"])}) for s in plain["samples"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"a record of the format {FORMAT!r} that lacks a field: {error}") from error


def pass_ms(samples: list[Taken], number: int) -> Spread | None:
    """Return the spread of the time of opening, warming and `number` passes; None where no sample got so far."""
    return Spread.of(s.passes_ns[number - 1] / 1e6 for s in samples if s.state == "ok" and len(s.passes_ns) >= number)


def second_pass_ms(samples: list[Taken]) -> Spread | None:
    """Return the spread of the time of the second pass alone."""
    return Spread.of((s.passes_ns[1] - s.passes_ns[0]) / 1e6 for s in samples if len(s.passes_ns) > 1)


def touch_rates(series: Series) -> dict[str, Spread]:
    """Return the rates of the first-touch controls in GB/s, by name."""
    found = {}
    for entry in series.entries:
        samples = [s for s in series.samples if s.method == entry.name and s.state == "ok" and s.warm_ns is not None]
        if entry.role == "control" and samples:
            rates = (s.notes["bytes"] / max((s.warm_ns or 0) - s.open_ns, 1) for s in samples)
            spread = Spread.of(rates)
            assert spread is not None
            found[entry.name] = spread
    return found


def device_rate(series: Series, place: str) -> Spread | None:
    """Return what O_DIRECT reads of the device in a place, into reused buffers, in MB/s: the best thread count."""
    size = next(p.size for p in series.places if p.name == place)
    names = [e.name for e in series.entries if e.name.startswith("o_direct-reused-")]
    spreads = [
        Spread.of(size / s.open_ns * 1e3 for s in series.of(name, place) if s.state == "ok" and s.open_ns)
        for name in names
    ]
    return max((spread for spread in spreads if spread is not None), key=lambda spread: spread.median, default=None)


def times_transfer(series: Series) -> bool:
    """Return whether fresh memory is known to be fast enough here for times of copies to mean something."""
    rates = touch_rates(series)
    return bool(rates) and all(rate.median >= sentences.SLOW_MEMORY_GB_PER_S for rate in rates.values())


def notes_of(series: Series) -> tuple[str, ...]:
    """Return what limits the numbers of a record, one sentence each: what every scenario with passes has to say."""
    return tuple(filter(None, (*_places(series), _control(series), _cold(series), *_lost(series), _rough(series))))


def _places(series: Series) -> Iterator[str]:
    for place in series.places:
        rate = device_rate(series, place.name)
        read = "" if rate is None else f"; O_DIRECT reads {rate.median:.0f} MB/s"
        ahead = place.read_ahead_bytes
        kib = "unknown" if ahead is None else f"{ahead // 1024} KiB"
        yield f"{place.name}: {place.detail}, {place.size / 1e6:.1f} MB, read-ahead {kib}{read}."
        limit = place.device_bytes_per_s
        if limit is not None and rate is not None and rate.median * 1e6 > 1.25 * limit:
            after = "after the 0.1 s that the kernel lets through"  # more than that is all a small file needs
            yield f"{place.name}: THE THROTTLE DOES NOT ACT: the limit is {limit / 1e6:.0f} MB/s, {after}."
    for name, reason in series.missing.items():
        yield f"{name}: not measured: {reason}."


def _control(series: Series) -> str:
    rates = touch_rates(series)
    if not rates:
        return "No first-touch control: times of copies against maps cannot be taken to other machines."
    words = ", ".join(f"{r.median:.1f} ({r.low:.1f}-{r.high:.1f}) GB/s {name[12:]}" for name, r in rates.items())
    if times_transfer(series):
        return f"First touch of fresh anonymous memory: {words}."
    return (
        f"First touch of fresh anonymous memory: {words}. Below {sentences.SLOW_MEMORY_GB_PER_S:g} GB/s,"
        " time ratios of copies against maps do not transfer to other machines; megabytes do."
    )


def _cold(series: Series) -> str:
    used = {entry.name for entry in series.entries if entry.uses_cache}
    asked = [s for s in series.samples if s.method in used and s.started]
    rest = [s.cached_before for s in asked if s.cached_before]
    unknown = sum(s.cached_before is None for s in asked)
    if unknown:
        return f"Nobody knows what was cached before {unknown} of {len(asked)} samples."
    if rest:
        return f"NOT cold: up to {max(rest) / 1e6:.1f} MB were cached before {len(rest)} of {len(asked)} samples."
    return f"Cold: the kernel counted 0 cached bytes of the file before each of {len(asked)} samples."


def _lost(series: Series) -> Iterator[str]:
    first: dict[tuple[str, str, str], list[Taken]] = {}
    for sample in series.samples:
        if sample.state != "ok":
            first.setdefault((sample.place, sample.method, sample.state), []).append(sample)
    for (place, method, state), samples in first.items():
        asked = len(series.of(method, place))
        yield f"{place}, {method}: {state}, {len(samples)} of {asked} samples: {samples[0].reason}."


def _rough(series: Series) -> str:
    taken = [s for s in series.samples if s.started]
    busy = sum(s.idle_share is None or s.idle_share <= quiet.ENOUGH for s in taken)
    rounds = 1 + max((s.round for s in series.samples), default=-1)
    words = []
    if rounds < sentences.ENOUGH_ROUNDS:
        words.append(f"{rounds} round{'' if rounds == 1 else 's'}: a published number needs {sentences.ENOUGH_ROUNDS}.")
    if busy:
        words.append(
            f"{busy} of {len(taken)} samples were taken on a machine that was not known to be"
            f" {quiet.ENOUGH:.0%} idle: read the times as rough."
        )
    return " ".join(words)
