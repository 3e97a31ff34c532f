#include "tools/ktx-run/expert_record.h"

#include <fmt/format.h>

#include <filesystem>

#include "lib/runtime/engine/plan_runner.h"
#include "lib/support/strings.h"
#include "lib/support/write_file.h"

namespace ktx::tools {

Result<ExpertRecord> ExpertRecord::open(const std::string& path) {
  ExpertRecord record;
  record.path_ = path;
  if (path.empty()) return record;
  std::error_code none;
  const bool there = std::filesystem::exists(path, none);
  if (there && std::filesystem::file_size(path, none) > 0) {
    record.before_ = KTX_TRY(plan::read_expert_profile(path));
  }
  KTX_TRY(replace_file(path, plan::kExpertProfileMagic, plan::to_json(record.before_)));
  return record;
}

Status ExpertRecord::save(runtime::Engine& engine) {
  if (path_.empty()) return {};
  plan::ExpertProfile sum = before_;
  const plan::ExpertProfile now = KTX_TRY(engine.runner().expert_profile());
  if (now.layers.empty()) {
    return Error{fmt::format("{}: the model has no routed experts; leave --record-experts out",
                             printable(path_))};
  }
  const Status added = plan::add_expert_profile(sum, now);
  if (!added) {
    return Error{
        fmt::format("{}: {}; record into another file", printable(path_), added.error().message)};
  }
  return replace_file(path_, plan::kExpertProfileMagic, plan::to_json(sum));
}

}  // namespace ktx::tools
