#include "onecopy/processes/equal_pages.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "onecopy/base/error.hpp"
#include "onecopy/base/interrupt.hpp"
#include "os/os.hpp"

namespace onecopy {
namespace {

constexpr std::size_t buffer_bytes = std::size_t{1} << 20U;
constexpr std::size_t states_at_once = 8192;

// A content with more pages than this in the sample occurs so often that its number of pages can be estimated directly.
constexpr std::uint64_t many_pages = 32;
// Contents with more pages than this in one source, or contents that look alike, say nothing about a file.
constexpr std::uint32_t most_in_source = 4;
constexpr std::size_t most_alike = 16;
// Candidates per block whose contents are compared, so that a file made of equal bytes costs no more than others.
constexpr std::size_t most_candidates = 4096;

std::uint64_t fold(std::uint64_t one, std::uint64_t other) noexcept {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(one) * other;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64U);
}

constexpr std::array<std::uint64_t, 4> odd{0x9E3779B97F4A7C15U, 0xD6E8FEB86659FD93U, 0xC2B2AE3D27D4EB4FU,
                                           0x94D049BB133111EBU};

std::uint64_t word_at(const std::byte* at) noexcept {
  std::uint64_t word = 0;
  std::memcpy(&word, at, sizeof word);
  return word;
}

// Four independent chains, because each product waits for the one before it.
std::uint64_t content_of(const std::byte* page, std::size_t size, std::uint64_t seed) noexcept {
  std::array<std::uint64_t, 4> lanes{seed ^ odd[0], seed ^ odd[1], seed ^ odd[2], seed ^ odd[3]};
  for (std::size_t i = 0; i < size; i += 64)
    for (std::size_t lane = 0; lane < 4; ++lane) {
      const std::byte* at = page + i + 16 * lane;
      lanes[lane] = fold(lanes[lane] ^ word_at(at), odd[lane] ^ word_at(at + 8));
    }
  return fold(lanes[0] ^ lanes[1], lanes[2] ^ lanes[3] ^ odd[0]);
}

// Of four words of a page: cheap enough to be calculated for every position in a file.
std::uint64_t mark_of(const std::byte* page, std::size_t size) noexcept {
  const std::size_t step = size / 4;
  return fold(word_at(page) ^ odd[0], word_at(page + step + 8) ^ odd[1]) ^
         fold(word_at(page + 2 * step + 16) ^ odd[2], word_at(page + 3 * step + 24) ^ odd[3]);
}

bool all_zeros(const std::byte* page, std::size_t size) noexcept {
  return word_at(page) == 0 && std::memcmp(page, page + 8, size - 8) == 0;
}

struct Page {
  std::uint64_t content;
  std::uint64_t place;  // equal for two entries that are the same page of the machine
  std::uint64_t mark;
  std::uint32_t source;
};

// A content, and its pages in each source: `pages` elements from `first` on.
struct Content {
  std::uint64_t content;
  std::uint64_t mark;
  std::uint32_t first;
  std::uint32_t sources;
  bool taken = false;  // counted as part of a file
};

struct Count {
  std::uint32_t source;
  std::uint32_t pages;
};

// Positions of contents by their marks.
class Marks {
 public:
  using Entry = std::pair<std::uint64_t, std::uint32_t>;  // a mark, a position

  void build(const std::vector<Content>& contents) {
    for (std::uint32_t i = 0; i < contents.size(); ++i) by_mark_.emplace_back(contents[i].mark, i);
    std::ranges::sort(by_mark_);
    while ((std::uint64_t{1} << bucket_bits_) < by_mark_.size()) ++bucket_bits_;
    starts_.assign((std::size_t{1} << bucket_bits_) + 1, 0);
    filter_.assign((std::size_t{16} << bucket_bits_) / 64, 0);
    for (const auto& [mark, _] : by_mark_) {
      ++starts_[bucket_of(mark) + 1];
      filter_[(mark / 64) % filter_.size()] |= std::uint64_t{1} << (mark % 64);
    }
    for (std::size_t i = 1; i < starts_.size(); ++i) starts_[i] += starts_[i - 1];
  }

  // Most marks are not there, which the filter tells at once.
  bool maybe(std::uint64_t mark) const noexcept {
    return ((filter_[(mark / 64) % filter_.size()] >> (mark % 64)) & 1U) != 0;
  }

  std::span<const Entry> with(std::uint64_t mark) const noexcept {
    const auto bucket = std::span(by_mark_)
                            .subspan(starts_[bucket_of(mark)])
                            .first(starts_[bucket_of(mark) + 1] - starts_[bucket_of(mark)]);
    const auto [first, last] = std::ranges::equal_range(bucket, mark, {}, &Entry::first);
    return {first, last};
  }

 private:
  std::size_t bucket_of(std::uint64_t mark) const noexcept { return mark >> (64 - bucket_bits_); }

  unsigned bucket_bits_ = 8;
  std::vector<Entry> by_mark_;
  std::vector<std::uint32_t> starts_;  // of each bucket in `by_mark_`
  std::vector<std::uint64_t> filter_;  // its size is a power of two
};

}  // namespace

struct EqualPages::State {
  std::uint64_t seed = 0;
  double share = 1;
  std::uint64_t chosen_below = UINT64_MAX;
  std::vector<Page> pages;
  std::uint32_t sources = 0;
  bool compared = false;
  std::vector<Content> contents;
  std::vector<Count> counts;
  Marks marks;

  bool chooses(const os::PageState& page, std::uint64_t address, std::uint64_t process) const noexcept {
    // A page that is shared since a fork has the same address in each process: it is chosen in all of them, or in none.
    const std::uint64_t who = page.is_shared ? 0 : process;
    return share >= 1 || fold(fold(address ^ odd[0], seed ^ odd[1]) ^ who, odd[2]) < chosen_below;
  }

  std::uint64_t place_of(const os::PageState& page, std::uint64_t address) const noexcept {
    constexpr std::uint64_t of_address = std::uint64_t{1} << 62U;
    constexpr std::uint64_t alone = std::uint64_t{2} << 62U;
    if (page.frame != 0) return page.frame;
    return page.is_shared ? of_address | address : alone | pages.size();
  }
};

namespace {

// Collects chosen pages that follow each other until the buffer is full, then reads them at once.
class PageReader {
 public:
  PageReader(int memory, std::size_t page_bytes) : memory_(memory), page_bytes_(page_bytes), buffer_(buffer_bytes) {}

  // use(address, state, page) for the pages before this one, if it does not follow them.
  template <class Use>
  void add(std::uint64_t address, const os::PageState& state, const Use& use) {
    if (states_.size() * page_bytes_ == buffer_.size() || address != first_ + states_.size() * page_bytes_) read(use);
    if (states_.empty()) first_ = address;
    states_.push_back(state);
  }

  // Pages that cannot be read, because they were unmapped meanwhile, are skipped.
  template <class Use>
  void read(const Use& use) {
    for (std::size_t page = 0; page < states_.size(); ++page) {
      const auto rest = std::span(buffer_).first((states_.size() - page) * page_bytes_);
      const auto got = os::read_at(memory_, rest, first_ + page * page_bytes_);
      for (std::size_t i = 0; i < got.value / page_bytes_; ++i)
        use(first_ + (page + i) * page_bytes_, states_[page + i], buffer_.data() + i * page_bytes_);
      page += got.value / page_bytes_;
    }
    states_.clear();
  }

 private:
  int memory_;
  std::size_t page_bytes_;
  std::vector<std::byte> buffer_;
  std::uint64_t first_ = 0;
  std::vector<os::PageState> states_;
};

// Extra pages of each source, from the pages that were read.
class Extra {
 public:
  Extra(std::uint32_t sources, double share) : share_(share), often_(sources), pairs_(sources) {}

  void add(std::span<const Count> counts) {
    std::uint64_t total = 0;
    for (const auto& count : counts) total += count.pages;
    if (share_ >= 1 || total >= many_pages) {
      bool is_first = true;  // the first page is no copy
      for (const auto& count : counts) {
        often_[count.source] += count.pages / share_ - (is_first ? 1 : 0);
        is_first = false;
      }
      return;
    }
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const auto& one = counts[i];
      if (one.pages > 1) pair(one.source, one.source) += one.pages * (one.pages - 1) / 2.0;
      for (const auto& earlier : counts.first(i)) pair(one.source, earlier.source) += one.pages * earlier.pages;
    }
  }

  // Two copies are both in the sample with probability share²: so many pages does each pair stand for. A source that
  // has pages in common with several others has most of them in common with all of these.
  std::vector<Estimate> of_all(std::size_t page_bytes) const {
    std::vector<Estimate> found(often_.size());
    for (std::size_t source = 0; source < often_.size(); ++source) {
      double pairs = 0;
      for (const auto& [earlier, count] : pairs_[source]) pairs = std::max(pairs, count);
      const double weight = static_cast<double>(page_bytes) / (share_ * share_);
      found[source] = {.bytes = often_[source] * static_cast<double>(page_bytes) + pairs * weight,
                       .error = std::sqrt(pairs) * weight};
    }
    return found;
  }

 private:
  double& pair(std::uint32_t source, std::uint32_t earlier) {
    auto& row = pairs_[source];
    const auto at = std::ranges::find(row, earlier, &std::pair<std::uint32_t, double>::first);
    return at != row.end() ? at->second : row.emplace_back(earlier, 0).second;
  }

  double share_;
  std::vector<double> often_;
  std::vector<std::vector<std::pair<std::uint32_t, double>>> pairs_;
};

// The pages with one content, in the order of their sources; a page that several sources map belongs to the first.
void count_places(std::span<Page> pages, std::vector<Count>& counts) {
  std::ranges::sort(pages, {}, [](const Page& page) { return std::pair(page.place, page.source); });
  const auto repeated = std::ranges::unique(pages, {}, &Page::place);
  const auto places = pages.first(pages.size() - repeated.size());
  std::ranges::sort(places, {}, &Page::source);
  const std::size_t first = counts.size();
  for (const auto& page : places) {
    if (counts.size() == first || counts.back().source != page.source) counts.push_back({page.source, 0});
    ++counts.back().pages;
  }
}

}  // namespace

EqualPages::EqualPages(double share, std::uint64_t seed) : state_(std::make_unique<State>()) {
  if (!(share > 0 && share <= 1))
    throw std::invalid_argument("the share of pages to read must be above 0 and at most 1");
  state_->seed = fold(seed ^ odd[2], odd[3]);
  state_->share = share;
  if (share < 1) state_->chosen_below = static_cast<std::uint64_t>(std::ldexp(share, 64));
}
EqualPages::EqualPages(EqualPages&&) noexcept = default;
EqualPages& EqualPages::operator=(EqualPages&&) noexcept = default;
EqualPages::~EqualPages() = default;

std::size_t EqualPages::page_bytes() noexcept { return os::page_size(); }

PagesRead EqualPages::add(std::uint64_t process, std::span<const ByteRange> addresses) {
  auto& state = *state_;
  if (state.compared) throw std::logic_error("the pages were compared already");
  const std::uint32_t source = state.sources++;
  const std::size_t size = page_bytes();
  const auto memory = os::open_memory(process);
  if (!memory) throw OsError("open", "/proc/" + std::to_string(process) + "/mem", memory.error);
  const auto page_map = os::open_page_map(process);
  const std::string path = "/proc/" + std::to_string(process) + "/pagemap";
  if (!page_map) throw OsError("open", path, page_map.error);
  PagesRead result;
  PageReader reader(memory.value.get(), size);
  const auto keep = [&](std::uint64_t address, const os::PageState& page, const std::byte* bytes) {
    result.read += size;
    if (all_zeros(bytes, size)) {
      result.zeros += size;
      return;
    }
    state.pages.push_back(
        {content_of(bytes, size, state.seed), state.place_of(page, address), mark_of(bytes, size), source});
  };
  std::vector<os::PageState> states(states_at_once);
  for (const auto& range : addresses) {
    std::uint64_t first = range.offset / size;
    const std::uint64_t last = first + range.length / size;
    while (first < last) {
      poll_interrupt();
      const auto part = std::span(states).first(std::min<std::uint64_t>(states_at_once, last - first));
      const auto got = os::page_states(page_map.value.get(), first, part);
      if (got.error != 0) throw OsError("read", path, got.error);
      if (got.value == 0) break;
      for (std::size_t i = 0; i < got.value; ++i) {
        const auto& page = states[i];
        const std::uint64_t address = (first + i) * size;
        if (page.is_swapped) result.swapped += size;
        if (!page.is_present || !page.is_anonymous) continue;
        result.present += size;
        if (!state.chooses(page, address, process)) continue;
        reader.add(address, page, keep);
      }
      first += got.value;
    }
  }
  reader.read(keep);
  return result;
}

std::vector<Estimate> EqualPages::compare() {
  auto& state = *state_;
  if (state.compared) throw std::logic_error("the pages were compared already");
  state.compared = true;
  std::ranges::sort(state.pages, {}, &Page::content);
  Extra extra(state.sources, state.share);
  for (std::size_t begin = 0; begin < state.pages.size();) {
    std::size_t end = begin + 1;
    while (end < state.pages.size() && state.pages[end].content == state.pages[begin].content) ++end;
    const auto pages = std::span(state.pages).subspan(begin, end - begin);
    Content content{.content = pages[0].content,
                    .mark = pages[0].mark,
                    .first = static_cast<std::uint32_t>(state.counts.size()),
                    .sources = 0};
    count_places(pages, state.counts);
    const auto counts = std::span(state.counts).subspan(content.first);
    content.sources = static_cast<std::uint32_t>(counts.size());
    extra.add(counts);
    if (std::ranges::all_of(counts, [](const Count& count) { return count.pages <= most_in_source; }))
      state.contents.push_back(content);
    begin = end;
  }
  state.pages = {};
  state.marks.build(state.contents);
  return extra.of_all(page_bytes());
}

template <typename Use>
void EqualPages::find(Bytes block, const Use& use) {
  auto& state = *state_;
  if (!state.compared) throw std::logic_error("the pages were not compared yet");
  const std::size_t size = page_bytes();
  std::size_t candidates = 0;
  for (std::size_t at = 0; at + size <= block.size() && candidates < most_candidates; ++at) {
    const std::byte* page = block.data() + at;
    const std::uint64_t mark = mark_of(page, size);
    if (!state.marks.maybe(mark)) continue;
    const auto alike = state.marks.with(mark);
    if (alike.empty() || alike.size() > most_alike) continue;
    ++candidates;
    const std::uint64_t content = content_of(page, size, state.seed);
    for (const auto& [_, position] : alike) {
      auto& one = state.contents[position];
      if (one.content == content && !one.taken) use(one);
    }
  }
}

bool EqualPages::occurs(Bytes block) {
  bool found = false;
  find(block, [&](const Content&) { found = true; });
  return found;
}

std::vector<double> EqualPages::take(Bytes block) {
  std::vector<double> found(state_->sources);
  find(block, [&](Content& one) {
    one.taken = true;
    for (const auto& count : std::span(state_->counts).subspan(one.first, one.sources))
      found[count.source] += static_cast<double>(count.pages * page_bytes()) / state_->share;
  });
  return found;
}

}  // namespace onecopy
