#include "files/fork_mutex.hpp"

#include "os/os.hpp"

namespace onecopy {

struct Forks {
  // Guards the list. Destructors of static objects may use it when the process ends.
  static std::mutex& mutex() {
    static auto& list = *new std::mutex;  // NOLINT(cppcoreguidelines-owning-memory): see above
    return list;
  }

  // As std::lock: waits for one mutex while it holds none, because a thread may hold one and wait for another.
  static void before() {
    mutex().lock();
    AroundForks* held = nullptr;
    while (AroundForks* const busy = lock_others_than(held)) {
      for (AroundForks* each = first; each != busy; each = each->next_)
        if (each != held) each->unlock_after_fork();
      if (held != nullptr) held->unlock_after_fork();
      busy->lock_for_fork();
      held = busy;
    }
  }

  static void after_in_parent() {
    for (AroundForks* each = first; each != nullptr; each = each->next_) each->unlock_after_fork();
    mutex().unlock();
  }

  static void after_in_child() {
    for (AroundForks* each = first; each != nullptr; each = each->next_) each->renew();
    mutex().unlock();
  }

  // Null: all are locked. Else the first that another thread holds; those behind it are not locked.
  static AroundForks* lock_others_than(const AroundForks* held) {
    for (AroundForks* each = first; each != nullptr; each = each->next_)
      if (each != held && !each->try_lock_for_fork()) return each;
    return nullptr;
  }

  static void add(AroundForks& one) {
    static const int around = os::around_fork(before, after_in_parent, after_in_child);
    (void)around;
    const std::scoped_lock lock(mutex());
    one.next_ = first;
    if (first != nullptr) first->previous_ = &one;
    first = &one;
  }

  static void remove(AroundForks& one) {
    const std::scoped_lock lock(mutex());
    if (one.next_ != nullptr) one.next_->previous_ = one.previous_;
    (one.previous_ != nullptr ? one.previous_->next_ : first) = one.next_;
  }

  static inline AroundForks* first = nullptr;
};

void AroundForks::enter() { Forks::add(*this); }
void AroundForks::leave() { Forks::remove(*this); }

}  // namespace onecopy
