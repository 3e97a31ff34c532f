// ktx-run: maps a plan and runs it.
#include <string_view>

#include "lib/images/decoder_process.h"
#include "tools/finish.h"
#include "tools/ktx-run/commands.h"
#include "tools/ktx-run/first_compile.h"
#include "tools/ktx-run/host_run.h"
#include "tools/ktx-run/interrupt.h"

namespace {

int run(const ktx::tools::Options& options) {
  using ktx::tools::Command;
  switch (options.command) {
    case Command::Generate:
      return ktx::tools::run_generate(options);
    case Command::Chat:
      return ktx::tools::run_chat(options);
    case Command::Serve:
      return ktx::tools::run_serve(options);
    case Command::Inspect:
      return ktx::tools::run_inspect(options);
    case Command::Bench:
      return ktx::tools::run_bench(options);
    case Command::Perplexity:
      return ktx::tools::run_perplexity(options);
    case Command::Score:
      return ktx::tools::run_score(options);
    case Command::Compare:
      return ktx::tools::run_compare(options);
    case Command::Selftest:
      return ktx::tools::run_selftest(options);
    case Command::Doctor:
      return ktx::tools::run_doctor(options);
    case Command::Probe:
      return ktx::tools::run_probe(options);
    case Command::Plans:
      return ktx::tools::run_plans(options);
    case Command::Pull:
      return ktx::tools::run_pull(options);
  }
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  // The process that decodes images; this program starts it for itself.
  if (argc == 2 && std::string_view(argv[1]) == ktx::images::kDecoderCommand) {
    return ktx::images::serve_decoder();
  }
  ktx::tools::explain_bus_errors();
  return ktx::tools::run_tool("ktx-run", [&] {
    int status = 2;
    auto options = ktx::tools::parse_options(argc, argv, status);
    if (!options) return status;
    std::vector<ktx::plan_cache::KeptPlan> kept;
    if (const auto end = ktx::tools::compile_models(*options, kept)) return *end;
    const std::optional<int> followed = ktx::tools::join_hosts(*options);
    if (followed) return *followed;
    status = run(*options);
    ktx::tools::leave_hosts(*options);
    return status;
  });
}
