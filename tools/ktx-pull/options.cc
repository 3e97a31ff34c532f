#include "tools/ktx-pull/options.h"

#include <algorithm>
#include <vector>

#include "tools/about.h"
#include "tools/finish.h"
#include "tools/option_table.h"

namespace ktx::tools {
namespace {

constexpr OptionRow<Options> kRows[] = {
#define KTX_OPTION KTX_OPTION_ROW
#include "tools/ktx-pull/pull_options.def"
};
constexpr OptionTable kOptions(kRows);

constexpr CommandInfo kOnlyCommand[] = {{"", "hf:OWNER/NAME[:QUANT]", "", "", ""}};

constexpr Tool kTool = {
    "ktx-pull",
    "pull",
    kOnlyCommand,
    kOptions.infos,
    "fetches a GGUF from a hub into the cache, and prints its path",
    "  ktx-pull hf:ggml-org/gemma-3-1b-it-GGUF:Q4_K_M\n"
    "  ktx-pull hf:ggml-org/gemma-3-1b-it-GGUF --list\n"
    "  HF_ENDPOINT=https://mirror.example ktx-pull hf:ggml-org/gemma-3-1b-it-GGUF:Q8_0\n",
    "Files are checked against the hub's SHA-256. What was broken off is continued.\n"
    "HF_TOKEN is sent to the hub alone, not to the hosts that it refers to.\n"
    "Exit status: 0 done, 1 failed, 2 wrong usage.\n",
};

}  // namespace

std::optional<Options> parse_options(int argc, char** argv, int& status) {
  const std::vector<std::string> args(argv + 1, argv + std::max(argc, 1));
  const ParsedLine line = parse_line(kTool, args);
  status = 0;
  Mistakes mistakes = line.mistakes;
  if (print_about(kTool, line, false, mistakes)) return std::nullopt;
  Options options;
  for (const Given& given : line.given) kOptions.set[given.option](options, given, mistakes);
  if (mistakes.empty() && line.words.size() != 1) {
    mistakes.emplace_back("name one model, such as hf:ggml-org/gemma-3-1b-it-GGUF:Q4_K_M");
  }
  if (mistakes.empty()) {
    const Result<HubModel> model = parse_hub_model(line.words[0]);
    if (model) options.model = *model;
    if (!model) mistakes.push_back(model.error().message);
  }
  if (mistakes.empty()) return options;
  for (const std::string& message : mistakes) say_error("ktx-pull", message);
  status = 2;
  return std::nullopt;
}

}  // namespace ktx::tools
