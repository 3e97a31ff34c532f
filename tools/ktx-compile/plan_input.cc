#include "tools/ktx-compile/plan_input.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "lib/plan/export_gguf.h"
#include "lib/plan/plan_reader.h"
#include "lib/plan/unpack_layout.h"
#include "lib/support/output_place.h"
#include "lib/support/strings.h"
#include "lib/support/timer.h"

namespace ktx::tools {
namespace {

namespace fs = std::filesystem;

// Beside the output, else a new one for temporary files.
Result<std::string> make_folder(const Options& options) {
  std::error_code error;
  if (!options.output.empty()) {
    const OutputPlace place = KTX_TRY(find_output(options.output));
    if (place.kind == OutputPlace::Kind::Stream) {
      return Error{fmt::format("{}: a plan is no stream; name a file", printable(options.output))};
    }
    const std::string folder = place.path + ".gguf.work";
    fs::create_directory(folder, error);
    if (!error) return folder;
    return Error{fmt::format("{}: cannot make this folder for the GGUF of {}: {}",
                             printable(folder), printable(options.model), error.message())};
  }
  std::string folder = (fs::temp_directory_path(error) / "ktx-compile-XXXXXX").string();
  if (!error && mkdtemp(folder.data()) != nullptr) return folder;
  return Error{fmt::format("{}: cannot make a folder for temporary files", printable(folder))};
}

}  // namespace

Result<std::unique_ptr<PlanInput>> PlanInput::rebuild(const Options& options) {
  const Timer timer;
  const plan::PlanFile plan = KTX_TRY(plan::PlanFile::open(options.model));
  if (plan->has_tower && options.mmproj.empty()) {
    return Error{
        fmt::format("{}: has a projector, which only its own file gives again: --mmproj FILE",
                    printable(options.model))};
  }
  std::unique_ptr<PlanInput> input(new PlanInput);
  input->folder_ = KTX_TRY(make_folder(options));
  input->merged_ = plan->facts.merged;
  const std::string path = input->folder_ + "/model.gguf";
  const bool weights = !options.output.empty();
  const auto paths = weights ? plan::export_gguf(plan, path, plan::unpack_layout, options.threads)
                             : plan::export_gguf_headers(plan, path);
  if (!paths) return paths.error();
  input->gguf_ = paths->front();
  if (weights && !options.quiet) {
    fmt::print(stderr, "{}: its GGUF was rebuilt in {:.1f} s, for the time of the compilation\n",
               printable(options.model), timer.seconds());
  }
  return input;
}

PlanInput::~PlanInput() {
  std::error_code ignored;
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

}  // namespace ktx::tools
