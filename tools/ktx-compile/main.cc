// ktx-compile: GGUF + HF config + YAML rules -> one plan.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "tools/finish.h"
#include "tools/ktx-compile/check.h"
#include "tools/ktx-compile/graph_text.h"
#include "tools/ktx-compile/options.h"
#include "tools/ktx-compile/pipeline.h"
#include "tools/ktx-compile/plan_input.h"
#include "tools/ktx-compile/sarif.h"
#include "tools/ktx-compile/text_commands.h"

namespace {

int run(const ktx::tools::Options& options);

// A plan stands for its GGUF.
int run_with_plan(const ktx::tools::Options& options) {
  const auto input = ktx::tools::PlanInput::rebuild(options);
  if (!input) {
    fmt::print(stderr, "ktx-compile: error: {}\n", input.error().message);
    return 1;
  }
  ktx::tools::Options with_gguf = options;
  with_gguf.model = (*input)->gguf();
  with_gguf.model_is_plan = false;
  return run(with_gguf);
}

int run(const ktx::tools::Options& options) {
  if (options.print_schema || !options.explain_code.empty()) {
    return ktx::tools::run_explain_code(options);
  }
  if (options.model_is_plan) return run_with_plan(options);
  if (options.check) return ktx::tools::run_check(options);
  if (options.tokenize_file) return ktx::tools::run_tokenize(options);
  if (options.render_chat_case) return ktx::tools::run_render_chat(options);
  if (options.graph_text) return ktx::tools::run_graph_text(options);
  return ktx::tools::run_compile(options);
}

// On a command line that could not be read as a whole.
bool asks_for_sarif(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    std::string_view arg = argv[i];
    arg.remove_prefix(std::min(arg.find_first_not_of('-'), arg.size()));
    if (arg == "diagnostics-format=sarif") return true;
    if (arg == "diagnostics-format" && i + 1 < argc)
      return argv[i + 1] == std::string_view("sarif");
  }
  return false;
}

// The messages are on stderr. A workflow uploads what is on stdout, and an empty file there
// would be a second error that hides the first.
int wrong_usage(int argc, char** argv) {
  if (asks_for_sarif(argc, argv)) {
    ktx::DiagSink sink;
    sink.error({}, "", "wrong usage, nothing was checked; the messages on stderr say why");
    fmt::print("{}", ktx::tools::to_sarif(sink, {.finished = false, .exit_status = 2}));
  }
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  return ktx::tools::run_tool("ktx-compile", [&] {
    int status = 0;
    const auto options = ktx::tools::parse_options(argc, argv, status);
    if (options) return run(*options);
    return status == 0 ? 0 : wrong_usage(argc, argv);
  });
}
