// Plans that a run may open, where signatures are required (--require-signature).
//
//   const VerifiedPlans verified = KTX_TRY(VerifiedPlans::verify(key, {"m.ktxplan"}));
//   ... open them ...
//   KTX_TRY(verified.check());   // they are still the files that were verified
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lib/support/file_stamp.h"
#include "lib/support/result.h"

namespace ktx::tools {

class VerifiedPlans {
 public:
  // `key`: a public key of minisign or its file; "": nothing is required. Fails with the first plan
  // that is not signed with it.
  static Result<VerifiedPlans> verify(const std::string& key,
                                      const std::vector<std::string>& paths);
  Status check() const;

 private:
  std::vector<std::pair<std::string, FileStamp>> plans_;
};

}  // namespace ktx::tools
