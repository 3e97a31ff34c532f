// Plans that a run may open, where signatures are required (--require-signature).
//
//   RequiredSignature required = KTX_TRY(RequiredSignature::create(options.serve, threads));
//   KTX_TRY(required.verify({"m.ktxplan"}));                       // before the port opens
//   ...
//   const VerifiedPlans plans = KTX_TRY(required.verify({"m.ktxplan"}));
//   ... open them ...
//   KTX_TRY(plans.check());   // they are still the files that were verified
//   required.check_weights(plans);
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lib/support/result.h"
#include "lib/trust/signed_plan.h"
#include "tools/ktx-run/options.h"

namespace ktx::tools {

class VerifiedPlans {
 public:
  Status check() const;

 private:
  friend class RequiredSignature;
  std::vector<trust::SignedPlan> plans_;
};

class RequiredSignature {
 public:
  // Fails where the key cannot be read. Without one nothing is required.
  static Result<std::unique_ptr<RequiredSignature>> create(const ServeFlags& flags, int threads);
  ~RequiredSignature();

  // Fails with the first plan that is not signed. What was verified before and is unchanged is not
  // read a second time. From any thread.
  Result<VerifiedPlans> verify(const std::vector<std::string>& paths);

  // Checks weights that were left for later, on a thread of its own. A wrong one ends the program
  // with status 1: answers that were made with it must not go on.
  void check_weights(const VerifiedPlans& plans);

 private:
  std::optional<trust::SignatureKey> key_;
  trust::VerifyOptions options_;
  std::mutex mutex_;
  std::map<std::string, trust::SignedPlan> verified_;  // and not opened since
  std::vector<std::thread> checks_;
  std::atomic<bool> stop_ = false;
};

}  // namespace ktx::tools
