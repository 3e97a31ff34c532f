#include "lib/runtime/experts/expert_note.h"

#include <chrono>
#include <system_error>

#include "lib/plan/expert_profile.h"
#include "lib/support/signal_block.h"
#include "lib/support/write_file.h"

namespace ktx::runtime {

ExpertNote::ExpertNote(ExpertCache* cache, ExpertGuests* guests, const std::string& plan_path)
    : cache_(cache), guests_(guests), path_(plan_path + ".experts") {
  if (const auto profile = plan::read_expert_profile(path_)) {
    if (cache_) cache_->prefer(*profile);
    if (guests_) guests_->prefer(*profile);
  }
  try {
    const SignalBlock block;
    thread_ = std::thread([this] { work(); });
  } catch (const std::system_error&) {
    // No thread to be had: experts come when they are needed.
  }
}

ExpertNote::~ExpertNote() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  // Beside a plan whose reads do not come, a write would not end either.
  if (!cache_ || cache_->await_reads()) write();
}

bool ExpertNote::stopping(int seconds) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::seconds(seconds), [this] { return stopping_; });
}

void ExpertNote::work() {
  // Few at a time: what a pass needs meanwhile waits for no more than these.
  constexpr int64_t kAtOnce = 16;
  const auto stop = [this] { return stopping(0); };
  while (!stop() && cache_ && cache_->preload(kAtOnce, stop) > 0) continue;
  while (!stopping(60)) {
    if (!cache_ || !cache_->hangs()) write();
  }
}

int64_t ExpertNote::uses() const {
  return (guests_ ? guests_->use().activations : 0) + (cache_ ? cache_->use().chosen() : 0);
}

void ExpertNote::write() {
  const int64_t now = uses();
  if (now == noted_) return;
  noted_ = now;
  // Layers with slots count all of their experts, the cache those that a CPU computes.
  plan::ExpertProfile profile = guests_ ? guests_->profile() : cache_->profile();
  if (guests_ && cache_) profile.layers.merge(cache_->profile().layers);
  // Nothing depends on it.
  (void)replace_file(path_, plan::kExpertProfileMagic, plan::to_json(profile));
}

}  // namespace ktx::runtime
