#include "tools/ktx-compile/merged_adapters.h"

#include <fmt/format.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lib/lora/read_lora.h"
#include "lib/support/strings.h"
#include "tools/given_adapter.h"

namespace ktx::tools {

Result<std::unique_ptr<const lora::Merge>> read_merge(const Options& options,
                                                      const input::ModelSource& source,
                                                      const ir::ModuleGraph& graph) {
  if (options.merge.empty()) return std::unique_ptr<const lora::Merge>();
  std::vector<std::shared_ptr<const LoraAdapter>> adapters;
  for (const std::string& text : options.merge) {
    const GivenAdapter given = parse_adapter(text);
    auto adapter = KTX_TRY(lora::read_adapter(given.path));
    adapter->scale = given.scale;
    adapters.push_back(std::move(adapter));
  }
  return std::make_unique<const lora::Merge>(
      KTX_TRY(lora::Merge::make(std::move(adapters), source.gguf, graph)));
}

Status check_consent(const lora::Merge& merge, const Options& options,
                     const ir::ModuleGraph& graph) {
  if (options.lossy) return {};
  std::set<std::string> tensors;
  std::string first;
  for (const ir::Module& module : graph.modules) {
    if (module.decision.lossy_allowed) continue;
    for (const ir::Param& param : module.params) {
      if (param.dtype == DType::F32) continue;
      for (const TensorSlice& slice : param.sources) {
        if (merge.find(slice.tensor) == nullptr || !tensors.insert(slice.tensor).second) continue;
        if (first.empty()) {
          first = fmt::format("{} ({})", printable(slice.tensor), name(param.dtype));
        }
      }
    }
  }
  if (tensors.empty()) return {};
  return Error{fmt::format(
      "--merge rounds {} tensor{} to their own formats again, {} the first; add --lossy, or `lossy: "
      "allow` to the rules of their modules, if that is intended; an adapter beside the weights "
      "loses nothing (ktx-run --lora)",
      tensors.size(), tensors.size() == 1 ? "" : "s", first)};
}

}  // namespace ktx::tools
