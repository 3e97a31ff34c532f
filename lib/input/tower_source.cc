#include "lib/input/tower_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "lib/families/family.h"
#include "lib/input/gguf_config.h"
#include "lib/support/strings.h"

namespace ktx::input {
namespace {

// A file of several kinds has a type for each.
std::string projector_key(const GgufFile& gguf) {
  const std::string own = fmt::format("{}.vision.projector_type", gguf.architecture());
  return gguf.value(own) ? own : fmt::format("{}.projector_type", gguf.architecture());
}

Result<const families::Family*> family_of(const GgufFile& gguf) {
  const std::vector<const families::Family*> towers = families::towers_of(gguf.architecture());
  if (towers.empty()) {
    return Error{fmt::format(
        "{}: general.architecture is '{}', which is no projector for images; give the mmproj file "
        "of the model",
        gguf.path(), printable(gguf.architecture()))};
  }
  const std::string key = projector_key(gguf);
  const std::string type(gguf.string(key).value_or(""));
  std::vector<std::string> known;
  for (const families::Family* tower : towers) {
    if (type == tower->tower.name) return tower;
    known.emplace_back(tower->tower.name);
  }
  return Error{fmt::format("{}: key '{}' is '{}': no such projector is known; known are {}",
                           gguf.path(), key, printable(type), join(known, ", "))};
}

}  // namespace

Result<ModelSource> tower_source(GgufFile gguf, const GgufFile& model, DiagSink& diags) {
  const families::Family* const family = KTX_TRY(family_of(gguf));
  const std::vector<std::string_view> models = split(family->tower.models, ' ');
  if (std::ranges::find(models, model.architecture()) == models.end()) {
    std::vector<std::string> known;
    for (const std::string_view one : models) known.push_back(fmt::format("'{}'", one));
    return Error{fmt::format("{}: a projector for models of architecture {}, but {} is of '{}'",
                             gguf.path(), join(known, " or "), model.path(),
                             printable(model.architecture()))};
  }
  HfConfig config = config_from_gguf(gguf, diags);
  KTX_TRY(gguf.check());
  return ModelSource{std::move(gguf), std::move(config), {}, {}, {}};
}

}  // namespace ktx::input
