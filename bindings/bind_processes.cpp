#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <iterator>

#include "bindings.hpp"
#include "buffer.hpp"
#include "gil.hpp"
#include "onecopy/processes/equal_pages.hpp"

namespace onecopy::bindings {
namespace {

PagesRead add(EqualPages& self, std::uint64_t process, const std::vector<RangeTuple>& addresses) {
  std::vector<ByteRange> ranges;
  ranges.reserve(addresses.size());
  for (const auto& [start, length] : addresses) ranges.push_back({start, length});
  const ReleaseGil release;
  return self.add(process, ranges);
}

std::vector<std::pair<double, double>> compare(EqualPages& self) {
  std::vector<Estimate> found;
  {
    const ReleaseGil release;
    found = self.compare();
  }
  std::vector<std::pair<double, double>> pairs;
  std::ranges::transform(found, std::back_inserter(pairs),
                         [](const Estimate& one) { return std::pair(one.bytes, one.error); });
  return pairs;
}

std::vector<double> take(EqualPages& self, nb::handle block) {
  const Buffer buffer(block);
  const ReleaseGil release;
  return self.take(buffer.bytes());
}

bool occurs(EqualPages& self, nb::handle block) {
  const Buffer buffer(block);
  const ReleaseGil release;
  return self.occurs(buffer.bytes());
}

}  // namespace

void bind_processes(const nb::module_& module) {
  nb::class_<PagesRead>(module, "PagesRead", "The private pages that `EqualPages.add` read, in bytes.")
      .def("__repr__", &repr_of, nb::sig("def __repr__(self) -> str"))
      .def_ro("present", &PagesRead::present, "Private pages in memory.")
      .def_ro("read", &PagesRead::read, "The part whose contents were compared.")
      .def_ro("zeros", &PagesRead::zeros, "The part of `read` that contains zeros only, which is not compared.")
      .def_ro("swapped", &PagesRead::swapped, "Swapped-out pages, which were not read.");
  nb::class_<EqualPages>(module, "EqualPages", "Finds pages with equal contents in the private memory of processes.")
      .def(nb::init<double, std::uint64_t>(), nb::arg("share") = 1.0, nb::arg("seed") = 0,
           "Read this share of the pages, chosen at random by `seed`.")
      .def("add", &add, nb::arg("process"), nb::arg("addresses"),
           "Read the private pages in address ranges (start, length) of a process as the next source.")
      .def("compare", &compare,
           "Return for each source the bytes that other sources or earlier pages contain already, and their standard "
           "error.")
      .def("take", &take, nb::arg("block"),
           "Return for each source the bytes of its pages that occur in `block`, at any position, and in no block that "
           "was taken before.")
      .def("occurs", &occurs, nb::arg("block"), "Return whether `take` would find pages.")
      .def_prop_ro_static("page_bytes", [](nb::handle) { return EqualPages::page_bytes(); }, "Size of a page.");
}

}  // namespace onecopy::bindings
