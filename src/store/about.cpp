#include "store/about.hpp"

#include <charconv>
#include <span>
#include <string_view>
#include <utility>

#include "onecopy/base/error.hpp"
#include "onecopy/files/atomic_writer.hpp"
#include "os/os.hpp"
#include "store/boots.hpp"
#include "store/folder.hpp"

namespace onecopy::store {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view first_line = "onecopy artefact 1\n";
constexpr std::string_view first_line_of_boot = "onecopy artefact 2\n";  // else one that is cut might count for good
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
    throw FormatError("'" + std::string(text.substr(0, 40)) + "' is not a number");
}

// Takes "name length value\n" off the front and returns the value.
std::string_view take_field(std::string_view& text, std::string_view name) {
  const auto fail = [&] { throw FormatError("no line '" + std::string(name) + " LENGTH VALUE' where one belongs"); };
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

std::string read_whole(const fs::path& path, std::uint64_t size) {
  if (size > longest) throw FormatError("a description of " + std::to_string(size) + " bytes is none");
  const auto fd = os::open_no_link(path.string());
  if (!fd) throw OsError("open", path.string(), fd.error);
  std::string text(size, '\0');
  const auto got = os::read_at(fd.value.get(), std::as_writable_bytes(std::span(text)), 0);
  if (!got) throw OsError("read", path.string(), got.error);
  text.resize(got.value);
  return text;
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
  if (!of_boot && !text.starts_with(first_line)) throw FormatError("it does not begin with 'onecopy artefact 1', or 2");
  text.remove_prefix(first_line.size());
  About about;
  if (of_boot) about.boot = take_field(text, "boot");
  if (of_boot && about.boot.empty()) throw FormatError("the boot has no name");
  for_each_field(about, [&](std::string_view name, auto& value) { read(take_field(text, name), value); });
  if (!text.empty()) throw FormatError("there is more after the last line");
  return about;
}

std::optional<About> read_about(const fs::path& path) {
  const auto facts = facts_of_ours(path);
  if (!facts) return std::nullopt;
  try {
    const std::string text = read_whole(path, facts.value.size);
    if (text.find_first_not_of('\0') == std::string::npos)
      return std::nullopt;  // it was not flushed, and the power went
    return parse_about(text);
  } catch (const FormatError& error) {
    throw FormatError("not the description of an artefact: " + std::string(error.what()) +
                      "; `onecopy store prune` removes it")
        .with_path(path.string());
  } catch (const OsError& error) {
    if (error.code() == ENOENT) return std::nullopt;  // removed since we looked
    throw;
  }
}

std::optional<About> read_about_of(const fs::path& path, const std::string& key) {
  auto about = read_about(path);
  if (about && about->key != key)
    throw FormatError("this is of the key '" + about->key + "', which has the digest of '" + key +
                      "'; ask for another key")
        .with_path(path.string());
  return about;
}

void write_about(const fs::path& path, const About& about) {
  const std::string text = to_text(about);
  AtomicWriter writer(path, text.size(), {.durable = about.boot.empty()});
  writer.write(std::as_bytes(std::span(text)));
  writer.commit();
}

bool fits(const About& about, const fs::path& artefact) {
  if (!counts_in_this_boot(about)) return false;
  const auto facts = facts_of_ours(artefact);
  return facts && facts.value.size == about.bytes && facts.value.mtime_ns == about.mtime_ns;
}

Artefact described(const About& about, const Paths& paths) {
  const auto facts = os::facts_of_entry(paths.about.string());
  Artefact artefact;
  artefact.key = about.key;
  artefact.path = paths.artefact;
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
