#include "tools/ktx-run/adapters.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "lib/lora/read_lora.h"
#include "lib/server/models/requested_model.h"
#include "lib/support/strings.h"
#include "tools/given_adapter.h"

namespace ktx::tools {
Result<Adapters> read_adapters(const std::vector<std::string>& given) {
  Adapters adapters;
  std::set<std::string> names;
  for (const std::string& text : given) {
    const GivenAdapter one = parse_adapter(text);
    auto adapter = KTX_TRY(lora::read_adapter(one.path));
    if (!names.insert(adapter->name).second) {
      return Error{fmt::format(
          "{}: two adapters are named '{}', and requests choose by name; rename one of the files",
          one.path, printable(adapter->name))};
    }
    adapter->scale = one.scale;
    adapters.push_back(std::move(adapter));
  }
  return adapters;
}

Status check_names(const Adapters& adapters, const std::string& model,
                   const std::vector<std::string>& aliases) {
  for (const auto& adapter : adapters) {
    const auto is = [&](const std::string& own) { return server::names_model(own, adapter->name); };
    if (!is(model) && std::ranges::none_of(aliases, is)) continue;
    return Error{fmt::format(
        "{}: the model has the name '{}' as well, and requests choose by name; rename the file",
        adapter->path, printable(adapter->name))};
  }
  return {};
}

}  // namespace ktx::tools
