#include "onecopy/structs/streams/file_streams.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "onecopy/files/atomic_writer.hpp"
#include "onecopy/files/mapping.hpp"

namespace onecopy::streams {
namespace {

// Small reads come from a buffer, large ones go straight into the caller's memory.
class InputBuffer : public std::streambuf {
 public:
  explicit InputBuffer(const std::filesystem::path& path)
      : mapping_(Mapping::open(path)), size_(mapping_.bytes().size()), buffer_(buffer_size) {}

 protected:
  int_type underflow() override {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(buffer_.size(), size_ - next_));
    if (count == 0) return traits_type::eof();
    read(buffer_.data(), count);
    setg(buffer_.data(), buffer_.data(), buffer_.data() + count);
    return traits_type::to_int_type(*gptr());
  }

  std::streamsize xsgetn(char* into, std::streamsize count) override {
    std::streamsize done = 0;
    while (done < count) {
      const std::streamsize wanted = count - done;
      if (const std::streamsize buffered = std::min<std::streamsize>(egptr() - gptr(), wanted); buffered > 0) {
        std::memcpy(into + done, gptr(), static_cast<std::size_t>(buffered));
        setg(eback(), gptr() + buffered, egptr());
        done += buffered;
      } else if (std::cmp_less(wanted, buffer_size)) {
        if (underflow() == traits_type::eof()) break;
      } else {
        const auto whole = std::min<std::uint64_t>(static_cast<std::uint64_t>(wanted), size_ - next_);
        if (whole == 0) break;
        read(into + done, static_cast<std::size_t>(whole));
        setg(nullptr, nullptr, nullptr);
        done += static_cast<std::streamsize>(whole);
      }
    }
    return done;
  }

  pos_type seekoff(off_type offset, std::ios_base::seekdir from, std::ios_base::openmode which) override {
    const auto here = static_cast<off_type>(next_) - (egptr() - gptr());
    if (from == std::ios_base::cur && offset == 0) return here;  // a query of the position: the buffer stays
    if (from == std::ios_base::cur) offset += here;
    if (from == std::ios_base::end) offset += static_cast<off_type>(size_);
    return seekpos(offset, which);
  }

  pos_type seekpos(pos_type to, std::ios_base::openmode /*which*/) override {
    const off_type offset = to;
    if (offset < 0 || std::cmp_greater(offset, size_)) return off_type{-1};
    next_ = static_cast<std::uint64_t>(offset);
    setg(nullptr, nullptr, nullptr);
    return to;
  }

 private:
  static constexpr std::size_t buffer_size = std::size_t{64} << 10U;

  void read(char* into, std::size_t count) {
    mapping_.read(next_, std::as_writable_bytes(std::span(into, count)));
    next_ += count;
  }

  Mapping mapping_;
  std::uint64_t size_;
  std::uint64_t next_ = 0;  // in the file, of the first byte behind the buffer
  std::vector<char> buffer_;
};

class NullBuffer : public std::streambuf {
 protected:
  int_type overflow(int_type character) override { return traits_type::not_eof(character); }
  std::streamsize xsputn(const char* /*from*/, std::streamsize count) override { return count; }
};

}  // namespace

class FileOutput::Buffer : public std::streambuf {
 public:
  Buffer(const std::filesystem::path& path, std::uint64_t size) : writer_(path, size) {}
  void commit() { writer_.commit(); }

 protected:
  int_type overflow(int_type character) override {
    if (traits_type::eq_int_type(character, traits_type::eof())) return traits_type::not_eof(character);
    const char byte = traits_type::to_char_type(character);
    xsputn(&byte, 1);
    return character;
  }

  std::streamsize xsputn(const char* from, std::streamsize count) override {
    writer_.write(std::as_bytes(std::span(from, static_cast<std::size_t>(count))));
    return count;
  }

  // Only the position is queried; the writer appends.
  pos_type seekoff(off_type offset, std::ios_base::seekdir from, std::ios_base::openmode /*which*/) override {
    if (offset != 0 || from != std::ios_base::cur) return off_type{-1};
    return static_cast<off_type>(writer_.written());
  }

 private:
  AtomicWriter writer_;
};

FileInput::FileInput(const std::filesystem::path& path)
    : std::istream(nullptr), buffer_(std::make_unique<InputBuffer>(path)) {
  rdbuf(buffer_.get());
  exceptions(std::ios_base::badbit);  // the buffer's own OsError comes through
}
FileInput::~FileInput() = default;

FileOutput::FileOutput(const std::filesystem::path& path, std::uint64_t size)
    : std::ostream(nullptr), buffer_(std::make_unique<Buffer>(path, size)) {
  rdbuf(buffer_.get());
  exceptions(std::ios_base::badbit);
}
FileOutput::~FileOutput() = default;
void FileOutput::commit() { buffer_->commit(); }

NullOutput::NullOutput() : std::ostream(nullptr), buffer_(std::make_unique<NullBuffer>()) { rdbuf(buffer_.get()); }
NullOutput::~NullOutput() = default;

}  // namespace onecopy::streams
