// The command line of ktx-pull.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tools/hub_model.h"

namespace ktx::tools {

struct Options {
  HubModel model;
  bool list = false, header = false, update = false, for_plan = false, or_plan = false,
       quiet = false;
  int64_t connections = 8;
  int64_t part_bytes = 16 << 20;
};

// Nothing where there is nothing to do: `status` is then the exit status.
std::optional<Options> parse_options(int argc, char** argv, int& status);

}  // namespace ktx::tools
