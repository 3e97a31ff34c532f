// The environment variables that ktx reads, all in one place; docs/cli.md lists
// them from this table.
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
