#include "tools/ktx-compile/compile_commands.h"

#include "tools/option_table.h"

namespace ktx::tools {
namespace {

constexpr OptionRow<Options> kRows[] = {
#define KTX_OPTION KTX_OPTION_ROW
#include "tools/ktx-compile/compile_options.def"
};
constexpr OptionTable kOptions(kRows);

constexpr CommandInfo kOnlyCommand[] = {{"", "MODEL [RULES.yaml ...]", "", "", ""}};

constexpr Tool kTool = {
    "ktx-compile",
    "compile",
    kOnlyCommand,
    kOptions.infos,
    "compiles a model into one plan that ktx-run maps and executes",
    "  ktx-compile model.gguf -o model.ktxplan\n"
    "  ktx-compile model-00001-of-00003.gguf rules.yaml -o model.ktxplan --ctx 32k\n"
    "  ktx-compile --check rules.yaml model.gguf --target=rtx-4090 --ctx 32k\n"
    "  ktx-compile --check rules.yaml --hf-config config.json --coverage\n"
    "  ktx-compile --tokenize prompt.txt model.gguf\n"
    "  ktx-compile --render-chat case.json model.gguf --template-var thinking=false\n"
    "  ktx-compile model.gguf --emit=step-ir --stop-after=lower-to-steps\n",
    "MODEL is a GGUF, of shards the first, or hf:OWNER/NAME[:QUANT], one of a hub.\n"
    "The first bytes of a file show its kind: the GGUF (give the first shard) or an\n"
    "optional YAML rule file. config.json next to the GGUF is found automatically.\n"
    "Exit status: 0 done, 1 failed, 2 wrong usage, 3 warnings under --strict.\n",
};

}  // namespace

const Tool& ktx_compile_tool() {
  return kTool;
}

void set_option(Options& options, const Given& given, Mistakes& mistakes) {
  kOptions.set[given.option](options, given, mistakes);
}

}  // namespace ktx::tools
