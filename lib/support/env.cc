#include "lib/support/env.h"

#include <cstdlib>
#include <cstring>

#include "lib/support/result.h"

namespace ktx {
namespace {

constexpr EnvVariable kVariables[] = {
    {"NO_COLOR", "when set, no colours are printed"},
    {"GITHUB_WORKSPACE", "root of the checkout: paths in SARIF are relative to it"},
    {"HOME", "where the chat keeps its history, and the cache is"},
    {"KTX_CACHE", "the folder of compiled plans and pulled models"},
    {"KTX_PROGRESS", "json: progress of ktx-pull and ktx-compile as lines of JSON on stderr"},
    {"HF_ENDPOINT", "the hub that models are pulled from (https://huggingface.co)"},
    {"HF_TOKEN", "sent to that hub, and to no other host"},
    {"XDG_CACHE_HOME", "its place where KTX_CACHE is not set: a folder ktx in it"},
    {"PATH", "where ktx-compile is looked for, if it is not beside ktx-run"},
    {"TERM", "dumb: the chat edits no lines"},
    {"KTX_PEER_ACCESS", "off: GPUs do not read each other's memory, and add up by way of the host"},
};

}  // namespace

std::span<const EnvVariable> env_variables() {
  return kVariables;
}

std::optional<std::string> env(const char* name) {
  bool known = false;
  for (const EnvVariable& variable : kVariables) known |= std::strcmp(variable.name, name) == 0;
  KTX_ASSERT(known);
  const char* value = std::getenv(name);
  if (!value || !*value) return std::nullopt;
  return std::string(value);
}

}  // namespace ktx
