// Writes a machine in the form that `--target=FILE` reads (lib/rules/target_yaml.h).
#pragma once

#include <string>

#include "lib/target/target.h"

namespace ktx::target {

// Rates that are not known are left out.
std::string target_text(const Target& target);

}  // namespace ktx::target
