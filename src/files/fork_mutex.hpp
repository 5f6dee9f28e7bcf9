// Mutexes that more than one thread may reach: no fork leaves one locked in the child.
//
// A child has only the thread that forked: a mutex that another thread had locked would stay locked for ever. It also
// reuses the stacks of the other threads: an object with one of these mutexes is static or on the heap.
// tools/check_lifetimes.py refuses mutexes that do not know of forks.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <utility>

namespace onecopy {

class AroundForks {
 public:
  AroundForks(const AroundForks&) = delete;
  AroundForks& operator=(const AroundForks&) = delete;

 protected:
  AroundForks() = default;
  virtual ~AroundForks() = default;

  // The last step of the constructor of a final class, and the first of its destructor: between them, a fork by another
  // thread may call what follows at any moment.
  void enter();
  void leave();

 private:
  friend struct Forks;

  // In the process that forks: before the fork, and after it.
  virtual bool try_lock_for_fork() { return true; }
  virtual void lock_for_fork() {}
  virtual void unlock_after_fork() {}
  virtual void renew() = 0;  // in the child

  AroundForks* previous_ = nullptr;  // of all that exist
  AroundForks* next_ = nullptr;
};

// Protects data in memory. A fork waits until no thread holds one: so nothing is waited for that a fork may delay, and
// no other one is made or destroyed, while one is held.
class ForkMutex final : public AroundForks {
 public:
  // `in_child` is called in every forked child before the mutex is free there.
  explicit ForkMutex(std::function<void()> in_child = nullptr) : in_child_(std::move(in_child)) { enter(); }
  ~ForkMutex() override { leave(); }

  void lock() { mutex_.lock(); }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  bool try_lock_for_fork() override { return mutex_.try_lock(); }
  void lock_for_fork() override { mutex_.lock(); }
  void unlock_after_fork() override { mutex_.unlock(); }
  void renew() override {
    if (in_child_ != nullptr) in_child_();
    std::construct_at(&mutex_);
  }

  std::function<void()> in_child_;
  std::mutex mutex_;
};

// Excludes long calls from each other, such as writes to a file, and protects no data in memory. A fork does not wait
// for them, and the child, which does not continue them, finds it free.
class SharedForkMutex final : public AroundForks {
 public:
  SharedForkMutex() { enter(); }
  ~SharedForkMutex() override { leave(); }

  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }
  void lock_shared() { mutex_.lock_shared(); }
  void unlock_shared() { mutex_.unlock_shared(); }

 private:
  void renew() override { std::construct_at(&mutex_); }

  std::shared_mutex mutex_;
};

}  // namespace onecopy
