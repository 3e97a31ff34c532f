// The environment variables that ktx reads, but for the settings of `serve`
// (tools/ktx-run/serve_settings.h). docs/cli.md lists them; a test compares.
#pragma once

#include <optional>
#include <span>
#include <string>

namespace ktx {

struct EnvVariable {
  const char* name;
  const char* meaning;
};

std::span<const EnvVariable> env_variables();

// The value of a variable in the table; nothing when unset or empty.
std::optional<std::string> env(const char* name);

}  // namespace ktx
