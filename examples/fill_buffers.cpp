// Tasks that each fill a big buffer which ends up on the disk: on the heap and then written, or in a scratch file.
//
//     fill_buffers heap|huge|scratch [BUFFERS [MIB [sync]]]      4 buffers of 1024 MiB, left to the kernel
//
// After a demonstration by Milian Wolff (mmap_demo), but so that the arms can be compared: each can wait for the disk
// (`sync`), the heap can have 2 MiB pages (`huge`), and what the kernel keeps of the files is counted. The heap arms
// hold everything twice at their peak, once as memory of the process and once as the page cache of what they write.
// Run it under `ulimit -d 2000000`: the heap arms end with std::bad_alloc, the scratch arm finishes.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "onecopy/base/error.hpp"
#include "onecopy/scratch/scratch_file.hpp"

namespace {

// "RssAnon:  1234 kB" of /proc/self/status and the like; 0 where there is no such line.
std::uint64_t kilobytes(const char* file, const std::string& name) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(name + ":")) return std::stoull(line.substr(name.size() + 1));
  return 0;
}

struct Arm {
  std::string name;
  std::size_t size = 0;
  bool sync = false;
};

// What a task leaves behind is held until all have been counted.
using Kept = std::shared_ptr<void>;

Kept on_the_heap(const Arm& arm) {
  constexpr std::size_t huge = std::size_t{2} << 20U;
  auto* block = static_cast<unsigned char*>(::operator new(arm.size, std::align_val_t{huge}));
  Kept kept(block, [](void* at) { ::operator delete(at, std::align_val_t{huge}); });
  if (arm.name == "huge") (void)::madvise(block, arm.size, MADV_HUGEPAGE);
  std::memset(block, 1, arm.size);
  const int fd = ::open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  for (std::size_t done = 0; done < arm.size;) {
    const auto wrote = ::write(fd, block + done, arm.size - done);
    if (wrote <= 0) throw onecopy::OsError("write", ".", errno);
    done += static_cast<std::size_t>(wrote);
  }
  if (arm.sync && ::fdatasync(fd) != 0) throw onecopy::OsError("flush", ".", errno);
  ::close(fd);
  return kept;
}

Kept in_a_file(const Arm& arm) {
  auto file = std::make_shared<onecopy::ScratchFile>(onecopy::ScratchFile::create(arm.size, {.folder = "."}));
  std::memset(file->bytes().data(), 1, arm.size);
  if (arm.sync) file->flush();
  return file;
}

void run(const Arm& arm, unsigned buffers) {
  const auto start = std::chrono::steady_clock::now();
  const auto free_before = kilobytes("/proc/meminfo", "MemFree");
  std::vector<Kept> kept(buffers);
  std::vector<std::exception_ptr> errors(buffers);
  std::vector<std::thread> tasks;
  for (unsigned i = 0; i < buffers; ++i)
    tasks.emplace_back([&, i] {
      try {
        kept[i] = arm.name == "scratch" ? in_a_file(arm) : on_the_heap(arm);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    });
  for (auto& task : tasks) task.join();
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  const auto free_after = kilobytes("/proc/meminfo", "MemFree");
  std::cout << arm.name << (arm.sync ? ", sync" : "") << ": " << took.count() << " s, anonymous "
            << kilobytes("/proc/self/status", "RssAnon") / 1024 << " MiB, of files "
            << kilobytes("/proc/self/status", "RssFile") / 1024 << " MiB, less free on the machine "
            << (free_before > free_after ? (free_before - free_after) / 1024 : 0) << " MiB, dirty "
            << kilobytes("/proc/meminfo", "Dirty") / 1024 << " MiB\n";
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  if (name != "heap" && name != "huge" && name != "scratch") {
    std::cerr << "usage: fill_buffers heap|huge|scratch [BUFFERS [MIB [sync]]]\n";
    return 2;
  }
  try {
    const auto buffers = static_cast<unsigned>(argc > 2 ? std::stoul(argv[2]) : 4);
    const std::size_t size = (argc > 3 ? std::stoul(argv[3]) : 1024) << 20U;
    run({name, size, argc > 4 && std::string(argv[4]) == "sync"}, buffers);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
