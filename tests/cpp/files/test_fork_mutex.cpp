#include <mutex>
#include <shared_mutex>

#include "children.hpp"
#include "files/fork_mutex.hpp"
#include "precompiled.hpp"

namespace onecopy {
namespace {

using testing::status_of_child;

int renewed = 0;

}  // namespace

TEST_CASE("no fork leaves a mutex locked in the child, however threads nest them") {
  ForkMutex outer;
  ForkMutex inner;
  int sum = 0;
  const auto work = [&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const std::scoped_lock first(outer);  // NOLINT(modernize-use-scoped-lock): nested
      const std::scoped_lock second(inner);
      ++sum;
      --sum;
    }
  };
  const std::jthread one(work);
  const std::jthread two(work);
  for (int i = 0; i < 200; ++i)
    CHECK(status_of_child([&] {
            const std::scoped_lock first(inner);  // NOLINT(modernize-use-scoped-lock): nested
            const std::scoped_lock second(outer);
            return sum == 0;
          }) == 0);
}

TEST_CASE("a fork calls no mutex that another thread has not made completely, or begins to destroy") {
  const auto work = [](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const ForkMutex brief;
      const SharedForkMutex shared;
    }
  };
  const std::jthread one(work);
  const std::jthread two(work);
  int failed = 0;
  for (int i = 0; i < 1000; ++i) failed += status_of_child([] { return true; }) == 0 ? 0 : 1;
  CHECK(failed == 0);
}

TEST_CASE("a child begins with what a mutex was made with, and the parent does not") {
  ForkMutex mutex([] { ++renewed; });
  CHECK(status_of_child([] { return renewed == 1; }) == 0);
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
  CHECK(status_of_child([&] {
          const std::scoped_lock lock(mutex);
          return true;
        }) == 0);
  step = 2;
  call.join();
}

}  // namespace onecopy
