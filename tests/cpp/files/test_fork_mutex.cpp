#include <sys/wait.h>
#include <unistd.h>

#include <mutex>
#include <shared_mutex>

#include "files/fork_mutex.hpp"
#include "precompiled.hpp"

namespace onecopy {
namespace {

// What a forked child returns; it is killed if it hangs.
template <class Work>
bool is_true_in_child(const Work& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    ::_exit(work() ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return status == 0;
}

int renewed = 0;

}  // namespace

TEST_CASE("no fork leaves a mutex locked in the child, however threads nest them") {
  ForkMutex outer;
  ForkMutex inner;
  int sum = 0;
  std::atomic<bool> stop{false};
  const auto work = [&] {
    while (!stop) {
      const std::scoped_lock first(outer);  // NOLINT(modernize-use-scoped-lock): nested
      const std::scoped_lock second(inner);
      ++sum;
      --sum;
    }
  };
  std::thread one(work);
  std::thread two(work);
  for (int i = 0; i < 200; ++i)
    CHECK(is_true_in_child([&] {
      const std::scoped_lock first(inner);  // NOLINT(modernize-use-scoped-lock): nested
      const std::scoped_lock second(outer);
      return sum == 0;
    }));
  stop = true;
  one.join();
  two.join();
}

TEST_CASE("a fork calls no mutex that another thread has not made completely, or begins to destroy") {
  std::atomic<bool> stop{false};
  const auto work = [&] {
    while (!stop) {
      const ForkMutex brief;
      const SharedForkMutex shared;
    }
  };
  std::thread one(work);
  std::thread two(work);
  int failed = 0;
  for (int i = 0; i < 1000; ++i) failed += is_true_in_child([] { return true; }) ? 0 : 1;
  CHECK(failed == 0);
  stop = true;
  one.join();
  two.join();
}

TEST_CASE("a child begins with what a mutex was made with, and the parent does not") {
  ForkMutex mutex([] { ++renewed; });
  CHECK(is_true_in_child([] { return renewed == 1; }));
  CHECK(renewed == 0);
  CHECK(mutex.try_lock());
  mutex.unlock();
}

TEST_CASE("a fork does not wait for a long call, and the child does not either") {
  SharedForkMutex mutex;
  std::atomic<int> step{0};
  std::thread call([&] {
    const std::shared_lock lock(mutex);
    for (step = 1; step != 2;) std::this_thread::yield();
  });
  while (step != 1) std::this_thread::yield();
  CHECK(is_true_in_child([&] {
    const std::scoped_lock lock(mutex);
    return true;
  }));
  step = 2;
  call.join();
}

}  // namespace onecopy
