// Models of hubs in the cache, and what they were pulled as: ktx-pull notes it, ktx-run reads it.
//
//   ~/.cache/ktx/models/OWNER/NAME/m-Q4_K_M.gguf
//   ~/.cache/ktx/models/OWNER/NAME/pulled.json     what was asked for, and the files that it was
//
// A file has one place, by whichever name it was asked for: OWNER and NAME are one in any case, as
// hubs have it, and the notes of all names lead to it.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lib/support/result.h"
#include "tools/hub_model.h"

namespace ktx::tools {

struct HubFile {
  std::string path;  // in the repository: "Q4_K_M/m-00001-of-00002.gguf"
  uint64_t bytes = 0;
  std::string sha256;  // 64 hexadecimal digits
};

// That of a file; of shards, that of the text of all of theirs. "" for no files.
std::string sha256_of(const std::vector<HubFile>& files);

class PulledModels {
 public:
  // The folder is made.
  static Result<PulledModels> open(const HubModel& model);

  // With the owner's name and its own in the case of the first time.
  HubModel as_written_first(HubModel model) const;
  // Where a file of the repository is, or will be; folders on the way are made.
  Result<std::string> place(const HubFile& file) const;
  // What was pulled under this name last; the files may be gone, or others be in their place.
  std::vector<HubFile> noted(const HubModel& model) const;
  // Whether the file that is there is this one, by what was noted of it.
  bool has(const HubFile& file) const;
  // Fails where another pull has replaced one of them by a file of another revision.
  Status check_places(const std::vector<HubFile>& files) const;
  // One of a model's files is there, and the others may still come.
  Status note_arrival(const HubModel& model, const HubFile& file, bool for_plan) const;
  // `for_plan`: they may be moved into their plan, whatever they were pulled for before.
  Status remember(const HubModel& model, const std::string& commit,
                  const std::vector<HubFile>& files, bool for_plan) const;
  // From now on they may not.
  Status keep(const std::vector<HubFile>& files) const;
  // Whether they may be.
  bool are_for_plan(const std::vector<HubFile>& files) const;

  // The path for a file's beginning, for --header.
  Result<std::string> header_place(const std::string& commit, const HubFile& file) const;
  const std::string& folder() const { return folder_; }

 private:
  explicit PulledModels(std::string folder) : folder_(std::move(folder)) {}
  Status change(const std::function<void(nlohmann::ordered_json& notes)>& how) const;
  std::string folder_;
};

}  // namespace ktx::tools
