#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "onecopy/files/available_memory.hpp"
#include "onecopy/page_cache/choose_mode.hpp"
#include "onecopy/page_cache/page_cache.hpp"
#include "onecopy/page_cache/warm.hpp"
#include "onecopy/structs/fields.hpp"

namespace onecopy::bindings {
namespace {

using Release = nb::call_guard<ReleaseGil>;

std::optional<Mechanism> parse_mechanism(const std::string& name) {
  if (name == "auto") return std::nullopt;
  for (const Mechanism mechanism : {Mechanism::none, Mechanism::advise, Mechanism::populate, Mechanism::read})
    if (to_string(mechanism) == name) return mechanism;
  throw nb::value_error("mechanism must be 'auto', 'populate', 'read', 'advise' or 'none'");
}

using JobHandle = WithoutGil<WarmJob>;  // its destructor waits for the pieces in flight

using Parts = std::vector<std::tuple<const MappingHandle*, RangeTuples, std::optional<Shared<Inspector>>>>;

std::unique_ptr<JobHandle> start_warm(const Parts& parts, unsigned threads, std::optional<bool> huge,
                                      std::optional<std::uint64_t> budget, const std::string& mechanism, bool in_order,
                                      bool low_priority) {
  const WarmOptions options{.threads = threads,
                            .huge = !huge   ? Huge::automatic
                                    : *huge ? Huge::yes
                                            : Huge::no,
                            .budget = budget,
                            .mechanism = parse_mechanism(mechanism),
                            .in_order = in_order,
                            .low_priority = low_priority};
  std::vector<WarmPart> shared;
  for (const auto& [mapping, ranges, inspector] : parts) {
    if (mapping == nullptr) throw nb::type_error("a part to warm must have a mapping, not None");
    shared.push_back({mapping->pin().owner(), to_ranges(ranges), inspector ? inspector->pin().owner() : nullptr});
  }
  const ReleaseGil release;
  return std::make_unique<JobHandle>(WarmJob::start(std::move(shared), options));
}

// The module's functions take a mapping and ranges; the GIL is released around them.
template <auto function>
auto with_ranges(const MappingHandle& handle, const RangeTuples& ranges) {
  return without_gil(handle.pin(), [&](const Mapping& mapping) { return function(mapping, to_ranges(ranges)); });
}

// Reports on several files as one.
template <class Report>
Report total_of(const std::vector<Report>& reports) {
  return total(std::span<const Report>(reports));
}

std::optional<double> cached_share(const Residency& residency) {
  if (!residency.cached || residency.bytes == 0) return std::nullopt;
  return static_cast<double>(*residency.cached) / static_cast<double>(residency.bytes);
}

// Reports travel between processes: their state is the tuple of their fields, enumerations as numbers.
template <class T>
nb::object state_of(const T& field) {
  if constexpr (std::is_enum_v<T>)
    return nb::cast(static_cast<int>(field));
  else
    return nb::cast(field);
}

template <class T>
nb::object state_of(const std::optional<T>& field) {
  return field ? state_of(*field) : nb::none();
}

template <class T>
void set_state(T& field, nb::handle state) {
  if constexpr (std::is_enum_v<T>)
    field = static_cast<T>(nb::cast<int>(state));
  else
    field = nb::cast<T>(state);
}

template <class T>
void set_state(std::optional<T>& field, nb::handle state) {
  if (!state.is_none()) set_state(field.emplace(), state);
}

template <class Report>
nb::class_<Report> bind_report(const nb::module_& module, const char* name, const char* doc) {
  return nb::class_<Report>(module, name, doc)
      .def("__repr__", &repr_of, nb::sig("def __repr__(self) -> str"))
      .def(
          "__getstate__",
          [](const Report& self) {
            return std::apply([](const auto*... field) { return nb::make_tuple(state_of(*field)...); },
                              structs::field_pointers(self));
          },
          nb::sig("def __getstate__(self) -> tuple[object, ...]"))
      .def(
          "__setstate__",
          [](Report& self, const nb::tuple& state) {
            const auto* report = new (&self) Report();
            std::apply(
                [&state](const auto*... field) {
                  if (state.size() != sizeof...(field))
                    throw nb::value_error("the state does not belong to this report");
                  std::size_t i = 0;
                  // The report is not const. NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast)
                  (set_state(const_cast<std::remove_const_t<std::remove_pointer_t<decltype(field)>>&>(*field),
                             state[i++]),
                   ...);
                },
                structs::field_pointers(*report));
          },
          nb::sig("def __setstate__(self, state: tuple[object, ...]) -> None"));
}

void bind_reports(const nb::module_& module) {
  bind_report<Residency>(
      module, "Residency",
      "How much of a mapping is in memory, in bytes. Numbers that the kernel does not report are None.")
      .def_ro("bytes", &Residency::bytes, "Bytes of the ranges, in whole pages.")
      .def_ro("cached", &Residency::cached, "Bytes in the page cache, whichever process read them.")
      .def_ro("dirty", &Residency::dirty, "Cached bytes that are not yet written back to the disk.")
      .def_ro("mapped", &Residency::mapped, "Bytes in the page tables of this process.")
      .def_ro("huge", &Residency::huge, "Mapped bytes in huge pages (2 MiB).")
      .def_prop_ro(
          "source", [](const Residency& self) { return to_string(self.source); },
          "The source of the numbers: 'cachestat', 'mincore' or 'unknown'.")
      .def_prop_ro("share", &cached_share, "cached / bytes, from 0 to 1.");
  bind_report<PageCache>(module, "PageCache",
                         "Bytes of a file in the page cache, in whole pages, whichever process read them.")
      .def_ro("cached", &PageCache::cached, "Bytes in memory.")
      .def_ro("dirty", &PageCache::dirty, "Bytes in memory that are not yet written back to the disk.")
      .def_ro("evicted", &PageCache::evicted, "Bytes that were evicted, as far as the kernel remembers.")
      .def_ro("recently_evicted", &PageCache::recently_evicted,
              "Bytes that were evicted so recently that reading them again indicates a memory shortage.");
  bind_report<MappedPages>(module, "MappedPages", "Bytes of an address range that are in a process's page tables.")
      .def_ro("mapped", &MappedPages::mapped, "Mapped bytes of the address range.")
      .def_ro("huge", &MappedPages::huge, "Mapped bytes in huge pages (2 MiB).");
  bind_report<WarmReport>(module, "WarmReport",
                          "The result of `warm`. Numbers that the kernel does not report are None.")
      .def_ro("bytes", &WarmReport::bytes, "Bytes of the ranges, in whole pages.")
      .def_ro("filled", &WarmReport::filled, "Bytes that this call read into memory.")
      .def_ro(
          "verified", &WarmReport::verified,
          "Bytes whose checksums were compared in the same pass and match, or None if verification was not requested.")
      .def_ro("cached_before", &WarmReport::cached_before, "Bytes in the page cache before the call.")
      .def_ro("cached_after", &WarmReport::cached_after, "Bytes in the page cache after the call.")
      .def_ro("huge_share", &WarmReport::huge_share,
              "Share of the mapped bytes that are in huge pages (2 MiB), from 0 to 1.")
      .def_ro("minor_faults", &WarmReport::minor_faults, "Faults that found the page in memory.")
      .def_ro("major_faults", &WarmReport::major_faults, "Faults that waited for the disk.")
      .def_ro("seconds", &WarmReport::seconds, "Duration of the call.")
      .def_ro("gib_per_s", &WarmReport::gib_per_s, "Read rate in GiB (2**30 bytes) per second.")
      .def_prop_ro(
          "mechanism", [](const WarmReport& self) { return to_string(self.mechanism); },
          "How the bytes were read: 'populate', 'read', 'advise' or 'none'.")
      .def_prop_ro(
          "huge",
          [](const WarmReport& self) -> std::optional<std::string_view> {
            if (!self.huge) return std::nullopt;
            return to_string(*self.huge);
          },
          "The kernel's answer to the request for 2 MiB pages: 'applied', 'refused' or 'unsupported'. None if they "
          "were not requested.")
      .def_ro("threads", &WarmReport::threads, "Number of threads that read, each with one request in flight.")
      .def_ro("piece", &WarmReport::piece, "Bytes that a thread requests at a time, or 0 if nothing was read.")
      .def_ro("file_system", &WarmReport::file_system,
              "Type of the file system, such as 'nfs', or '' if it is unknown.")
      .def_ro("latency", &WarmReport::latency,
              "Seconds until the file system answered a read of 4 KiB, or None if that was not measured.")
      .def_ro("complete", &WarmReport::complete, "Whether all bytes of the ranges are in memory.")
      .def_ro("reason", &WarmReport::reason, "What was done and why, as a sentence.");
  bind_report<EvictReport>(module, "EvictReport",
                           "The result of `evict`. Numbers that the kernel does not report are None.")
      .def_ro("bytes", &EvictReport::bytes, "Bytes of the ranges, in whole pages.")
      .def_ro("cached_before", &EvictReport::cached_before, "Bytes in the page cache before the call.")
      .def_ro("cached_after", &EvictReport::cached_after,
              "Bytes that stayed, because other processes map or lock them.")
      .def_ro("seconds", &EvictReport::seconds, "Duration of the call.")
      .def_ro("reason", &EvictReport::reason, "What was evicted and why bytes stayed, as a sentence.");
  bind_report<PinReport>(module, "PinReport", "The result of `pin`.")
      .def_ro("bytes", &PinReport::bytes, "Bytes of the ranges, in whole pages.")
      .def_ro("pinned", &PinReport::pinned, "Bytes that are locked.")
      .def_prop_ro(
          "outcome", [](const PinReport& self) { return to_string(self.outcome); },
          "The kernel's answer: 'applied', 'refused' or 'unsupported'.")
      .def_ro("reason", &PinReport::reason, "What was locked and what limited it, as a sentence.");
}

}  // namespace

nb::str repr_of(nb::handle report) {
  nb::list parts;
  const nb::handle type = report.type();
  for (const nb::handle name : type.attr("__dict__")) {
    if (nb::cast<std::string>(nb::str(name)).starts_with('_')) continue;
    parts.append(nb::str("{}={!r}").format(name, report.attr(name)));
  }
  return nb::str("{}({})").format(type.attr("__name__"), nb::str(", ").attr("join")(parts));
}

void bind_page_cache(nb::module_& module) {
  bind_reports(module);
  (void)nb::class_<Shared<Inspector>>(module, "Inspector", "Inspects data while it is read into memory.");
  nb::class_<JobHandle>(module, "WarmJob",
                        "A `warm` call that runs in the background and shares ownership of the mapping.")
      .def(
          "wait_for",
          [](const JobHandle& self, double seconds) -> std::optional<WarmReport> {
            constexpr double longest = 1e9;  // about 30 years; more would wrap as nanoseconds
            const double limited = seconds > 0 ? std::min(seconds, longest) : 0;  // of NaN, too
            if (!self->wait_for(std::chrono::milliseconds(static_cast<std::int64_t>(limited * 1000))))
              return std::nullopt;
            return self->wait();
          },
          nb::arg("seconds"), Release(), "Return the report, or None if the job is still running after this time.")
      .def_prop_ro(
          "done", [](const JobHandle& self) { return self->done(); }, Release())
      .def("cancel", [](JobHandle& self) { self->cancel(); })
      .def_prop_ro("progress", [](const JobHandle& self) {
        const Progress progress = self->progress();
        return std::pair(progress.done, progress.total);
      });
  module.def(
      "available_memory",
      []() -> std::optional<std::pair<std::uint64_t, nb::object>> {
        const auto memory = [] {
          const ReleaseGil release;
          return available_memory();
        }();
        if (!memory) return std::nullopt;
        return std::pair(memory->bytes, text_of(memory->limited_by));
      },
      nb::sig("def available_memory() -> tuple[int, str] | None"),
      "Return (available bytes, what limits them), or None if the number is unknown.");
  module.def("expect_memory", &expect_memory, nb::arg("size"), nb::arg("operation"), nb::arg("path"),
             nb::arg("instead"), Release(), "Raise NotEnoughMemory if this process may not use `size` more bytes.");
  module.def("held_by_group", &held_by_group, nb::arg("group"), nb::arg("version"), Release(),
             "Return how many of the bytes charged to a control group the kernel cannot drop: usage minus page cache.");
  module.def(
      "start_warm", &start_warm, nb::arg("parts"), nb::kw_only(), nb::arg("threads"), nb::arg("huge").none(),
      nb::arg("budget").none(), nb::arg("mechanism"), nb::arg("in_order"), nb::arg("low_priority") = false,
      nb::sig("def start_warm(parts: Sequence[tuple[Mapping, Sequence[tuple[int, int]] | None, Inspector | None]], *, "
              "threads: int, huge: bool | None, budget: int | None, mechanism: str, in_order: bool, "
              "low_priority: bool = False) -> WarmJob"),
      "Start reading ranges of files in the background. A file without ranges (None) is read completely.");
  module.def(
      "choose_mode",
      [](const std::filesystem::path& path, std::uint64_t whole) {
        const auto choice = choose_mode(path, whole);
        return std::tuple(choice.mode == Mode::copy, choice.huge, choice.reason);
      },
      nb::arg("path"), nb::kw_only(), nb::arg("whole") = 0, Release(),
      "Return (whether to copy, whether to use 2 MiB pages, the reason). `whole` is the total size of all files that "
      "are opened together.");
  module.def("total_residency", &total_of<Residency>, nb::arg("reports"));
  module.def("total_evicted", &total_of<EvictReport>, nb::arg("reports"));
  module.def("total_pinned", &total_of<PinReport>, nb::arg("reports"));
  module.def("residency", &with_ranges<residency>, nb::arg("mapping"), nb::arg("ranges").none());
  module.def(
      "cachestat",
      [](int descriptor, const std::optional<RangeTuple>& range) {
        return cachestat(descriptor, range ? std::optional(ByteRange{range->first, range->second}) : everything);
      },
      nb::arg("descriptor"), nb::arg("range").none(), Release(),
      "Report how much of an open file, or of a range in it, is in the page cache.");
  module.def(
      "mapped_in",
      [](std::uint64_t process, std::uint64_t address, std::uint64_t length) {
        return mapped_in(process, {address, length});
      },
      nb::arg("process"), nb::arg("address"), nb::arg("length"), Release(),
      "Report how much of an address range is in a process's page tables.");
  module.def("evict", &with_ranges<evict>, nb::arg("mapping"), nb::arg("ranges").none());
  module.def("pin", &with_ranges<pin>, nb::arg("mapping"), nb::arg("ranges").none());
  module.def("unpin", &with_ranges<unpin>, nb::arg("mapping"), nb::arg("ranges").none());
  module.def(
      "register_with_cuda",
      [](const MappingHandle& handle, const RangeTuples& ranges, bool only_tried) {
        without_gil(handle.pin(),
                    [&](const Mapping& mapping) { register_with_cuda(mapping, to_ranges(ranges), only_tried); });
      },
      nb::arg("mapping"), nb::arg("ranges").none(), nb::kw_only(), nb::arg("only_tried"));
}

}  // namespace onecopy::bindings
