#include "store/about.hpp"

#include <charconv>
#include <span>
#include <string_view>
#include <utility>

#include "files/writing/target.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/files/atomic_writer.hpp"
#include "os/os.hpp"
#include "store/boots.hpp"
#include "store/folder.hpp"

namespace onecopy::store {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view first_line = "onecopy artefact 1\n";
constexpr std::string_view first_line_of_boot = "onecopy artefact 2\n";  // a truncated one must not seem permanent
constexpr std::uint64_t longest = 1U << 24U;                             // a key is a line or two

// The fields in their order, for the writer and the reader alike: field(name, value) with text or a number.
template <class AboutOrConst, class Field>
void for_each_field(AboutOrConst& about, const Field& field) {
  field("key", about.key);
  field("bytes", about.bytes);
  field("written", about.mtime_ns);
  field("created", about.created_ns);
  field("source", about.source);
  field("source-inode", about.source_identity.inode);
  field("source-bytes", about.source_identity.size);
  field("source-written", about.source_identity.mtime_ns);
}

std::string text_of(const std::string& text) { return text; }
template <class Number>
std::string text_of(Number number) {
  return std::to_string(number);
}

void read(std::string_view text, std::string& into) { into = text; }
template <class Number>
void read(std::string_view text, Number& into) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), into);
  if (error != std::errc{} || end != text.data() + text.size())
    reject(FormatError::malformed, "'", text.substr(0, 40), "' is not a number");
}

// Takes "name length value\n" off the front and returns the value.
std::string_view take_field(std::string_view& text, std::string_view name) {
  const auto fail = [&] { reject(FormatError::malformed, "the line '", name, " LENGTH VALUE' is missing"); };
  if (!text.starts_with(name) || !text.substr(name.size()).starts_with(' ')) fail();
  text.remove_prefix(name.size() + 1);
  std::uint64_t length = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
  if (error != std::errc{} || end == text.data() + text.size() || *end != ' ') fail();
  text.remove_prefix(static_cast<std::size_t>(end - text.data()) + 1);
  if (!in_bounds(text.size(), length, 1) || text[length] != '\n') fail();
  const auto value = text.substr(0, length);
  text.remove_prefix(length + 1);
  return value;
}

std::string read_whole(const os::Fd& fd, const File& file) {
  const auto facts = os::facts_of(fd.get());
  if (!facts) fail(file, "get the attributes of", facts.error);
  if (facts.value.size > longest)
    reject(FormatError::too_costly, "the description has ", facts.value.size, " bytes, more than the maximum of ",
           longest);
  std::string text(facts.value.size, '\0');
  const auto got = os::read_at(fd.get(), std::as_writable_bytes(std::span(text)), 0);
  if (!got) fail(file, "read", got.error);
  text.resize(got.value);
  return text;
}

bool matches(const About& about, const os::Result<os::FileFacts>& artefact) {
  return artefact && is_ours_alone(artefact.value) && artefact.value.size == about.bytes &&
         artefact.value.mtime_ns == about.mtime_ns;
}

}  // namespace

std::string to_text(const About& about) {
  std::string text(about.boot.empty() ? first_line : first_line_of_boot);
  const auto append = [&](std::string_view name, const std::string& value) {
    text.append(name).append(" ").append(std::to_string(value.size())).append(" ").append(value).append("\n");
  };
  if (!about.boot.empty()) append("boot", about.boot);
  for_each_field(about, [&](std::string_view name, const auto& value) { append(name, text_of(value)); });
  return text;
}

About parse_about(std::string_view text) {
  const bool of_boot = text.starts_with(first_line_of_boot);
  if (!of_boot && !text.starts_with(first_line))
    reject(FormatError::not_this_format, "it begins neither with 'onecopy artefact 1' nor with 'onecopy artefact 2'");
  text.remove_prefix(first_line.size());
  About about;
  if (of_boot) about.boot = take_field(text, "boot");
  if (of_boot && about.boot.empty()) reject(FormatError::malformed, "the boot identifier is empty");
  for_each_field(about, [&](std::string_view name, auto& value) { read(take_field(text, name), value); });
  if (!text.empty()) reject(FormatError::malformed, "unexpected text after the last line");
  return about;
}

std::optional<About> read_about(const File& file) {
  const auto fd = open_ours(file);
  if (!fd) return std::nullopt;
  try {
    const std::string text = read_whole(fd, file);
    if (text.find_first_not_of('\0') == std::string::npos)
      return std::nullopt;  // it was not flushed before a power cut
    return parse_about(text);
  } catch (const FormatError& error) {
    throw FormatError(error.kind(), concat("not the description of an artefact: ", error.what(),
                                           "; `onecopy store prune` removes it"))
        .with_path(file.path().string());
  }
}

std::optional<About> read_about_of(const File& file, const std::string& key) {
  auto about = read_about(file);
  if (about && about->key != key)
    throw FormatError(FormatError::inconsistent, "the file belongs to the key '" + about->key +
                                                     "', which has the same digest as '" + key +
                                                     "'; choose another key")
        .with_path(file.path().string());
  return about;
}

void write_about(const File& file, const About& about) {
  const std::string text = to_text(about);
  AtomicWriter writer(Target(file.folder.descriptor(), file.path()), text.size(),
                      {.durable = about.boot.empty(), .permissions = 0600U | file.folder.readers()});
  writer.write(std::as_bytes(std::span(text)));
  writer.commit();
}

bool is_as_built(const About& about, const File& artefact) {
  return counts_in_this_boot(about) && matches(about, facts_of_ours(artefact));
}

os::Fd open_as_built(const About& about, const File& artefact) {
  if (!counts_in_this_boot(about)) return {};
  auto fd = open_ours(artefact);
  return fd && matches(about, os::facts_of(fd.get())) ? std::move(fd) : os::Fd();
}

void record_use(const Files& files) noexcept {
  const auto description = os::open_no_link(files.about.at());
  if (description) (void)os::set_times_now(description.value.get());
}

Artefact described(const About& about, const Files& files) {
  const auto facts = os::facts_of_entry(files.about.at());
  Artefact artefact;
  artefact.key = about.key;
  artefact.path = files.artefact.path();
  artefact.bytes = about.bytes;
  artefact.created_ns = about.created_ns;
  artefact.last_used_ns = facts ? facts.value.mtime_ns : about.created_ns;
  artefact.source = about.source;
  artefact.source_present = is_present(about.source, about.source_identity);
  return artefact;
}

FileIdentity identity_at(const fs::path& path) {
  const auto facts = os::facts_of(path.string());
  if (!facts) return {};
  return {facts.value.device, facts.value.inode, facts.value.size, facts.value.mtime_ns};
}

bool is_present(const std::string& source, const FileIdentity& identity) {
  if (source.empty()) return false;
  auto now = identity_at(source);
  now.device = identity.device;
  return now == identity;
}

}  // namespace onecopy::store
