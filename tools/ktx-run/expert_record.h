// --record-experts FILE: how often each expert was chosen, for ktx-compile --expert-profile
// (lib/plan/expert_profile.h). What the file has already is added to.
//
//   ExpertRecord record = KTX_TRY(ExpertRecord::open(options.engine.record_experts));   // "":
//   nothing
//   ...
//   KTX_TRY(record.save(engine));
#pragma once

#include <string>

#include "lib/plan/expert_profile.h"
#include "lib/runtime/engine/engine.h"
#include "lib/support/result.h"

namespace ktx::tools {

class ExpertRecord {
 public:
  // Fails where the file is something else, or cannot be written.
  static Result<ExpertRecord> open(const std::string& path);
  // Between two passes; the engine counts from its start, so that a later call replaces an earlier.
  Status save(runtime::Engine& engine);

 private:
  std::string path_;
  plan::ExpertProfile before_;
};

}  // namespace ktx::tools
