// ktx-run: maps a plan and runs it.
#include "tools/ktx-run/commands.h"

int main(int argc, char** argv) {
  using ktx::tools::Command;
  const auto options = ktx::tools::parse_options(argc, argv);
  if (!options) return 2;
  switch (options->command) {
    case Command::Generate:
      return ktx::tools::run_generate(*options);
    case Command::Chat:
      return ktx::tools::run_chat(*options);
    case Command::Serve:
      return ktx::tools::run_serve(*options);
    case Command::Inspect:
      return ktx::tools::run_inspect(*options);
    case Command::Bench:
      return ktx::tools::run_bench(*options);
  }
}
