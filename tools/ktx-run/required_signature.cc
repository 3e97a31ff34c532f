#include "tools/ktx-run/required_signature.h"

#include "lib/trust/signature.h"

namespace ktx::tools {

Result<VerifiedPlans> VerifiedPlans::verify(const std::string& key,
                                            const std::vector<std::string>& paths) {
  VerifiedPlans verified;
  if (key.empty()) return verified;
  const trust::PublicKey required = KTX_TRY(trust::read_public_key(key));
  for (const std::string& path : paths) {
    verified.plans_.emplace_back(path, KTX_TRY(trust::verify_file(required, path)));
  }
  return verified;
}

Status VerifiedPlans::check() const {
  for (const auto& [path, stamp] : plans_) KTX_TRY(check_unchanged(path, stamp));
  return {};
}

}  // namespace ktx::tools
