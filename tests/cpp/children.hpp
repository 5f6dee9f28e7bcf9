// Forked children of tests.
#pragma once

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <vector>

namespace onecopy::testing {

// The wait status of each of `count` children that do `work` at the same time: 0 where `work` returns true. A child
// that hangs is killed.
template <class Work>
std::vector<int> statuses_of_children(std::size_t count, const Work& work) {
  std::vector<pid_t> children(count);
  for (pid_t& child : children) {
    child = ::fork();
    if (child != 0) continue;
    ::alarm(60);
    ::_exit(work() ? 0 : 1);
  }
  std::vector<int> statuses(count, -1);
  for (std::size_t i = 0; i < count; ++i) ::waitpid(children[i], &statuses[i], 0);
  return statuses;
}

template <class Work>
int status_of_child(const Work& work) {
  return statuses_of_children(1, work).front();
}

// A child that says a number on a pipe, the result of `work`, and then waits to be killed.
class Child {
 public:
  template <class Work>
  explicit Child(const Work& work) {
    std::array<int, 2> pipe{};
    REQUIRE(::pipe(pipe.data()) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      const int number = work();
      (void)!::write(pipe[1], &number, sizeof number);
      for (;;) ::pause();
    }
    (void)!::read(pipe[0], &said_, sizeof said_);
    ::close(pipe[0]);
    ::close(pipe[1]);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { kill(); }

  pid_t pid() const noexcept { return pid_; }
  int said() const noexcept { return said_; }
  void kill() {
    if (pid_ == 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
  int said_ = 0;
};

}  // namespace onecopy::testing
