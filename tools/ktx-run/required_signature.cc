#include "tools/ktx-run/required_signature.h"

#include <fmt/format.h>
#include <unistd.h>

#include "tools/ktx-run/report.h"

namespace ktx::tools {

Status VerifiedPlans::check() const {
  for (const trust::SignedPlan& plan : plans_) KTX_TRY(check_unchanged(plan.path, plan.stamp));
  return {};
}

Result<std::unique_ptr<RequiredSignature>> RequiredSignature::create(const ServeFlags& flags,
                                                                     int threads) {
  auto required = std::make_unique<RequiredSignature>();
  if (!flags.require_signature.empty()) {
    required->key_ = KTX_TRY(trust::read_signature_key(flags.require_signature));
  }
  required->options_ = {flags.weights_meanwhile, threads};
  return required;
}

RequiredSignature::~RequiredSignature() {
  stop_ = true;
  for (std::thread& check : checks_) check.join();
}

Result<VerifiedPlans> RequiredSignature::verify(const std::vector<std::string>& paths) {
  VerifiedPlans plans;
  if (!key_) return plans;
  const std::lock_guard lock(mutex_);
  for (const std::string& path : paths) {
    const auto known = verified_.find(path);
    if (known != verified_.end() && check_unchanged(path, known->second.stamp)) {
      plans.plans_.push_back(known->second);
      verified_.erase(known);
    } else {
      plans.plans_.push_back(KTX_TRY(trust::verify_plan(*key_, path, options_)));
      verified_[path] = plans.plans_.back();
    }
  }
  return plans;
}

void RequiredSignature::check_weights(const VerifiedPlans& plans) {
  const std::lock_guard lock(mutex_);
  for (const trust::SignedPlan& plan : plans.plans_) {
    if (!plan.weights_to_check) continue;
    checks_.emplace_back([this, plan] {
      const Status found = trust::verify_weights_later(plan, options_.threads, stop_);
      if (found && !stop_)
        note(fmt::format("{}: all weights are those that were signed", plan.path));
      if (found || stop_) return;
      fail(found.error().message);
      _exit(1);
    });
  }
}

}  // namespace ktx::tools
