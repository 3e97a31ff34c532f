// ktx-run pull: fetches a model from a hub, by the program ktx-pull.
#include <fmt/format.h>

#include "tools/hub_model.h"
#include "tools/ktx-run/commands.h"
#include "tools/ktx-run/report.h"

namespace ktx::tools {

int run_pull(const Options& options) {
  const auto pulled = pull_model(options.pull.model, {options.pull.list ? "--list" : "--update"});
  if (!pulled) return fail(pulled.error().message);
  if (!pulled->path.empty()) fmt::print("{}\n", pulled->path);
  return pulled->status;
}

}  // namespace ktx::tools
