// Models of hubs in the cache, and what they were pulled as.
//
//   ~/.cache/ktx/models/OWNER/NAME/m-Q4_K_M.gguf
//   ~/.cache/ktx/models/OWNER/NAME/pulled.json     what was asked for, and the files that it was
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lib/support/result.h"
#include "tools/hub_model.h"
#include "tools/ktx-pull/hub_files.h"

namespace ktx::tools {

class PulledModels {
 public:
  // The folder is made.
  static Result<PulledModels> open(const HubModel& model);

  // Where a file of the repository is, or will be; folders on the way are made.
  Result<std::string> place(const HubFile& file) const;
  // What was pulled under this name, where all of it is still there.
  std::optional<std::vector<HubFile>> find(const HubModel& model) const;
  // Whether the file that is there is this one, by what was noted of it.
  bool has(const HubFile& file) const;
  // `for_plan`: they may be moved into their plan.
  Status remember(const HubModel& model, const std::string& commit,
                  const std::vector<HubFile>& files, bool for_plan) const;
  // From now on they may not.
  Status keep(const HubModel& model) const;
  // Whether what was pulled under this name may be.
  bool is_for_plan(const HubModel& model) const;

  // The path for a file's beginning, for --header.
  Result<std::string> header_place(const std::string& commit, const HubFile& file) const;
  const std::string& folder() const { return folder_; }

 private:
  explicit PulledModels(std::string folder) : folder_(std::move(folder)) {}
  std::string folder_;
};

}  // namespace ktx::tools
