// ktx-compile: GGUF + HF config + YAML rules -> one plan.
#include "tools/finish.h"
#include "tools/ktx-compile/check.h"
#include "tools/ktx-compile/options.h"
#include "tools/ktx-compile/pipeline.h"
#include "tools/ktx-compile/text_commands.h"

namespace {

int run(const ktx::tools::Options& options) {
  if (options.print_schema || !options.explain_code.empty()) {
    return ktx::tools::run_explain_code(options);
  }
  if (options.check) return ktx::tools::run_check(options);
  if (options.tokenize_file) return ktx::tools::run_tokenize(options);
  if (options.render_chat_case) return ktx::tools::run_render_chat(options);
  return ktx::tools::run_compile(options);
}

}  // namespace

int main(int argc, char** argv) {
  return ktx::tools::run_tool("ktx-compile", [&] {
    const auto options = ktx::tools::parse_options(argc, argv);
    return options ? run(*options) : 2;
  });
}
