#include "tools/ktx-compile/consumed_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>

#include "lib/input/file_kind.h"
#include "lib/plan/move_blobs.h"
#include "lib/plan/plan_reader.h"
#include "lib/support/mapped_file.h"
#include "lib/support/output_place.h"
#include "lib/support/shard_names.h"
#include "lib/support/strings.h"
#include "lib/support/work_file.h"

namespace ktx::tools {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> files_of(const std::string& model) {
  const auto shard = parse_shard_name(model);
  if (!shard || shard->number != 1) return {model};
  std::vector<std::string> files;
  for (uint32_t i = 1; i <= shard->count; ++i) files.push_back(shard_path(*shard, i));
  return files;
}

bool is_there(const std::string& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

// A killed run may have left the plan's prefix in memory only. After a sync that failed, the system
// takes it for written, so it is written again. All else was on the disk before it.
Status sync_plan(WorkFile& work) {
  std::array<std::byte, sizeof(plan::Prefix)> prefix;
  KTX_TRY(work.read(0, prefix));
  KTX_TRY(work.write(0, prefix));
  return work.sync();
}

}  // namespace

Result<ConsumedModel> ConsumedModel::open(const std::string& model) {
  ConsumedModel consumed;
  for (const std::string& path : files_of(model)) {
    consumed.files.push_back(KTX_TRY(MovedFile::open(path)));
  }
  if (std::ranges::none_of(consumed.files, &MovedFile::begun)) return consumed;
  for (MovedFile& file : consumed.files) KTX_TRY(file.begin());
  return consumed;
}

std::string ConsumedModel::how_to_go_on(const std::string& plan) const {
  if (std::ranges::none_of(files, &MovedFile::stays)) return "";
  return fmt::format(
      "; nothing is lost: {0}{2} and {1}{2} have the model, and the same command goes "
      "on with them",
      printable(files.front().path()), printable(plan), kMovingSuffix);
}

Result<bool> finish_move(const Options& options) {
  const OutputPlace place = KTX_TRY(find_output(options.output));
  const std::string moving = place.path + kMovingSuffix;
  if (!is_there(moving)) return false;
  const Result<MappedFile> mapped = MappedFile::open(moving);
  if (!mapped || input::file_kind(mapped->bytes()) != input::FileKind::KtxPlan) return false;
  WorkFile work = KTX_TRY(WorkFile::open(options.output, "KTXPLAN", 0666, kMovingSuffix));
  work.leave();
  KTX_TRY(sync_plan(work));
  const plan::PlanFile plan = KTX_TRY(plan::PlanFile::open(moving));
  const std::vector<std::string> files = files_of(options.model);
  for (size_t i = 0; i < files.size(); ++i) {
    if (is_there(files[i])) {
      return Error{
          fmt::format("{}: a whole plan that an earlier --consume made, and {} is there "
                      "as well; rename the plan to keep it, or remove it",
                      printable(moving), printable(files[i]))};
    }
    if (!is_there(files[i] + kMovingSuffix)) continue;
    MovedFile rest = KTX_TRY(MovedFile::open(files[i]));
    if (files.size() != plan->gguf_shards.size()) {
      return Error{
          fmt::format("{}: a whole plan of {} files, and the model has {}; rename it to "
                      "keep it",
                      printable(moving), plan->gguf_shards.size(), files.size())};
    }
    KTX_TRY(plan::check_rest(plan, static_cast<uint32_t>(i), rest));
    KTX_TRY(rest.remove());
  }
  KTX_TRY(work.commit());
  return true;
}

}  // namespace ktx::tools
