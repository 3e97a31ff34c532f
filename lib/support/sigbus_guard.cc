#include "lib/support/sigbus_guard.h"

#include <signal.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <mutex>

namespace ktx {

// A guarded range. All are atomics in a fixed table, because a signal handler may neither
// lock nor allocate. Slots are reused; `end` is 0 in a free one.
struct SigbusGuard::Slot {
  std::atomic<uintptr_t> begin{0};
  std::atomic<uintptr_t> end{0};
  std::atomic<int> protection{0};
  std::atomic<bool> hit{false};
};

namespace {

constexpr int kMaxSlots = 4096;
constexpr uintptr_t kPageBytes = 4096;
SigbusGuard::Slot g_slots[kMaxSlots];
std::mutex g_slots_mutex;
struct sigaction g_previous_action;

void on_sigbus(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (SigbusGuard::Slot& slot : g_slots) {
    const uintptr_t end = slot.end.load();
    if (address < slot.begin.load() || address >= end) continue;
    // Before another thread can read zeros.
    slot.hit.store(true);
    // To the end at once, since nothing of the range is of use any more: page by page a disk that
    // fails takes minutes for a gigabyte.
    const uintptr_t page = address & ~(kPageBytes - 1);
    if (mmap(reinterpret_cast<void*>(page), end - page, slot.protection.load(),
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED) {
      break;
    }
    return;
  }
  // Not ours: call the previous handler, or die as usual.
  if (g_previous_action.sa_flags & SA_SIGINFO) {
    g_previous_action.sa_sigaction(signal, info, context);
  } else if (g_previous_action.sa_handler != SIG_DFL && g_previous_action.sa_handler != SIG_IGN) {
    g_previous_action.sa_handler(signal);
  } else {
    ::signal(SIGBUS, SIG_DFL);
    raise(SIGBUS);
  }
}

void install_handler() {
  static const bool installed = [] {
    struct sigaction action = {};
    action.sa_sigaction = on_sigbus;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGBUS, &action, &g_previous_action);
    return true;
  }();
  (void)installed;
}

}  // namespace

SigbusGuard::SigbusGuard(void* data, size_t size, bool writable) : slot_(nullptr) {
  const std::lock_guard lock(g_slots_mutex);
  install_handler();
  for (Slot& slot : g_slots) {
    if (slot.end.load() != 0) continue;
    slot.hit.store(false);
    slot.protection.store(writable ? PROT_READ | PROT_WRITE : PROT_READ);
    slot.begin.store(reinterpret_cast<uintptr_t>(data));
    slot.end.store(reinterpret_cast<uintptr_t>(data) + size);
    slot_ = &slot;
    return;
  }
}

SigbusGuard::~SigbusGuard() {
  if (!slot_) return;
  const std::lock_guard lock(g_slots_mutex);
  slot_->begin.store(0);
  slot_->end.store(0);
}

bool SigbusGuard::hit() const {
  return slot_ && slot_->hit.load();
}

}  // namespace ktx
