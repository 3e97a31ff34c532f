// ktx-run inspect: shows the contents of a plan, verifies it, and rebuilds its source GGUF.
//
//   ktx-run inspect model.ktxplan                          tables
//   ktx-run inspect model.ktxplan --json                   the same for programs
//   ktx-run inspect model.ktxplan --verify                 reads and checks all weights
//   ktx-run inspect model.ktxplan --export-gguf copy.gguf  rebuilds the source
#include <fmt/format.h>

#include <cstdio>

#include "lib/plan/describe_plan.h"
#include "lib/plan/export_gguf.h"
#include "lib/plan/plan_reader.h"
#include "lib/plan/unpack_layout.h"
#include "lib/support/strings.h"
#include "lib/support/timer.h"
#include "tools/ktx-run/commands.h"
#include "tools/ktx-run/report.h"

namespace ktx::tools {

int run_inspect(const Options& options) {
  plan::PlanOpenOptions open_options;
  open_options.verify_weights = options.engine.verify;
  open_options.threads = options.engine.threads;
  const Timer open_timer;
  const auto plan = plan::PlanFile::open(options.plan, open_options);
  if (!plan.ok()) return fail(plan.error().message);
  if (options.engine.verify && plan->view().has_drafter) {
    open_options.drafter = true;
    const auto drafter = plan::PlanFile::open(options.plan, open_options);
    if (!drafter.ok()) return fail(drafter.error().message);
  }
  const double seconds = open_timer.seconds();

  const std::string text =
      options.json ? plan::plan_json(plan->view()) : plan::plan_tables(plan->view());
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    return 1;  // finish.h says why
  }
  if (const Status status = plan->check(); !status.ok()) return fail(status.error().message);
  if (options.engine.verify) {
    note(fmt::format("{}: all hashes are right ({} in {:.1f} s)", options.plan,
                     human_bytes(plan->view().file_bytes), seconds));
  }
  if (!options.export_gguf.empty()) {
    const Timer export_timer;
    const auto paths =
        plan::export_gguf(*plan, options.export_gguf, plan::unpack_layout, options.engine.threads);
    if (!paths.ok()) return fail(paths.error().message);
    for (const std::string& path : *paths) {
      note(fmt::format("{}: written ({:.1f} s)", path, export_timer.seconds()));
    }
  }
  return 0;
}

}  // namespace ktx::tools
